-- documents.lua: several documents one after the other; a query sees the keys of its own.
local document = tensor("document", "int32", batch, nk)

visible = document(b, i + nk - nq) == document(b, j)
