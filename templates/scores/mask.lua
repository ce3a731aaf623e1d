-- mask.lua: a dense mask, one bool for each query and key; true: the query sees the key.
-- Strides of 0 share it among batch entries, heads or queries.
local mask = tensor("mask", "bool", batch, heads, nq, nk)

visible = mask(b, h, i, j)
