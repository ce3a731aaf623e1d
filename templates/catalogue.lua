-- catalogue.lua: which kernels exist, for which pass and family, and why others do not.
-- A row has the template to start from, or the reason why there is none.

return {
  { pass = "forward", family = "mma", template = "mma_forward.cu.in" },
  { pass = "forward", family = "wgmma", template = "wgmma_forward.cu.in" },
  { pass = "backward", family = "mma_backward", template = "mma_backward.cu.in" },
  { pass = "forward", family = "mma_backward", missing = "its kernels make gradients" },
  { pass = "backward", family = "mma", missing = "its kernels make O; gradients are mma_backward's" },
  { pass = "backward", family = "wgmma", missing = "gradients are made by mma_backward alone" },
}
