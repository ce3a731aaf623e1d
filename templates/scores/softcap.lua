-- softcap.lua: scores between -cap and cap.
local cap = scalar("cap")

score = cap * tanh(s / cap)
