-- rectangles.lua: rectangles of queries and keys that see each other, as fatune_rectangle_bounds has made them
-- into at most four ranges of keys for each query: first key, end, first key, end ...
local bounds = tensor("bounds", "int32", batch, nq, 8)

local function within(n)
  return j >= bounds(b, i, 2 * n) and j < bounds(b, i, 2 * n + 1)
end
visible = within(0) or within(1) or within(2) or within(3)
