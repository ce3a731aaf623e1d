-- catalogue.lua: which kernels exist, for which pass and family, and why others do not.
-- A row has the template to start from, or the reason why there is none.

return {
  { pass = "forward", family = "mma", template = "mma_forward.cu.in" },
  { pass = "forward", family = "wgmma", template = "wgmma_forward.cu.in" },
  { pass = "backward", family = "mma", missing = "the backward pass is not implemented yet" },
}
