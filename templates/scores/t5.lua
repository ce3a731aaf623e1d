-- t5.lua: relative position buckets of an encoder (arXiv 1910.10683), half of them for keys behind the query.
-- Distances up to half of a side's buckets have one each, longer ones share theirs by logarithm up to `distance`.
local buckets, distance = scalar("buckets", "int"), scalar("distance", "int")
local bias = tensor("bias", "fp32", heads, buckets)

local side = buckets // 2
local exact = side // 2
local offset = j - (i + nk - nq)
local away = abs(offset)
-- 1e-4: a distance at which a bucket begins belongs to it, however its logarithm is rounded.
local far = exact + floor(log(max(away, 1) / exact) / log(distance / exact) * (side - exact) + 1e-4)
local bucket = where(away < exact, away, min(far, side - 1)) + where(offset > 0, side, 0)

score = s + bias(h, bucket)
