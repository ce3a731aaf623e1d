-- prefix_lm.lua: all queries see the first `prefix` keys of their batch entry, of the others those up to their place.
local prefix = tensor("prefix", "int32", batch)

visible = j < prefix(b) or j <= i + nk - nq
