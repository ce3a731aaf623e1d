-- block_causal.lua: a query sees the keys up to the end of its own block.
local block = scalar("block", "int")

visible = j // block <= (i + nk - nq) // block
