-- interval.lua: each query sees the keys from a first one up to, and without, another.
local low, high = tensor("low", "int32", batch, nq), tensor("high", "int32", batch, nq)

visible = j >= low(b, i) and j < high(b, i)
