-- alibi.lua: attention with linear biases (arXiv 2108.12409).
-- A key's score falls with its distance from the query, by a slope for each head.
local slope = tensor("slope", "fp32", heads)

score = s - slope(h) * abs(i + nk - nq - j)
