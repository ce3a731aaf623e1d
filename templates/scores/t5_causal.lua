-- t5_causal.lua: relative position buckets of a decoder (arXiv 1910.10683), all of them for keys up to the query.
-- Distances up to half of the buckets have one each, longer ones share theirs by logarithm up to `distance`.
local buckets, distance = scalar("buckets", "int"), scalar("distance", "int")
local bias = tensor("bias", "fp32", heads, buckets)

local exact = buckets // 2
local away = max(i + nk - nq - j, 0)
-- 1e-4: a distance at which a bucket begins belongs to it, however its logarithm is rounded.
local far = exact + floor(log(max(away, 1) / exact) / log(distance / exact) * (buckets - exact) + 1e-4)

score = s + bias(h, where(away < exact, away, min(far, buckets - 1)))
