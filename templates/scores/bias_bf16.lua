-- bias_bf16.lua: a dense bias in bf16, one number for each query and key.
-- Strides of 0 share it among batch entries, heads or queries.
local bias = tensor("bias", "bf16", batch, heads, nq, nk)

score = s + bias(b, h, i, j)
