-- relative.lua: a learnt bias for each head and distance; the key at the query's own place has entry nk - 1.
local bias = tensor("bias", "fp32", heads, nq + nk - 1)

score = s + bias(h, j - (i + nk - nq) + nk - 1)
