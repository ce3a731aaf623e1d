-- neighbourhood.lua: queries and keys are the pixels of an image, row by row (arXiv 2204.07143).
-- A query sees the square of 2 reach + 1 pixels around it; at a border the square is the last that fits.
local height, width, reach = scalar("height", "int"), scalar("width", "int"), scalar("reach", "int")

local y = min(max(i // width, reach), height - 1 - reach)
local x = min(max(i % width, reach), width - 1 - reach)

visible = abs(j // width - y) <= reach and abs(j % width - x) <= reach
