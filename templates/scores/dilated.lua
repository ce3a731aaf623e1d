-- dilated.lua: of the keys around a query every `step`-th, `reach` to either side.
local step, reach = scalar("step", "int"), scalar("reach", "int")
local offset = i + nk - nq - j

visible = offset % step == 0 and abs(offset) <= reach * step
