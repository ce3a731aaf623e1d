-- bias_fp32.lua: a dense bias in fp32, one number for each query and key.
-- Strides of 0 share it among batch entries, heads or queries.
local bias = tensor("bias", "fp32", batch, heads, nq, nk)

score = s + bias(b, h, i, j)
