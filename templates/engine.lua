-- engine.lua: the template engine.
-- in -> out: template files + a table of values -> text, and for each line the template line it came from.
--
-- A line that begins with //@ is Lua. In any other line $(expression) becomes the expression's value.
-- The engine turns a template into one Lua chunk with exactly as many lines, so that Lua's own messages
-- carry the right line number; an undefined name is an error.

local engine = {}

-- One text line with values as a Lua call: literal pieces and $(...) values alternate.
local function text_line_to_lua(line, number)
  local pieces, position = {}, 1
  while true do
    local start, stop = line:find("%$%b()", position)
    if not start then break end
    pieces[#pieces + 1] = string.format("%q", line:sub(position, start - 1))
    pieces[#pieces + 1] = "(" .. line:sub(start + 2, stop - 1) .. ")"
    position = stop + 1
  end
  pieces[#pieces + 1] = string.format("%q", line:sub(position))
  return string.format("emit_line(%d, %s)", number, table.concat(pieces, ", "))
end

-- Lines without values as one call with one long string. It begins with a dot, because Lua drops a line break
-- that comes first.
local function plain_lines_to_lua(lines, number)
  return string.format("emit_lines(%d, [====[.%s]====])", number, table.concat(lines, "\n"))
end

local function template_to_lua(text)
  local chunk, plain, number = {}, {}, 0
  local function flush()
    if #plain > 0 then chunk[#chunk + 1] = plain_lines_to_lua(plain, number - #plain) end
    plain = {}
  end
  if text:sub(-1) ~= "\n" then text = text .. "\n" end
  for line in text:gmatch("([^\n]*)\n") do
    number = number + 1
    local statement = line:match("^%s*//@(.*)$")
    if statement or line:find("$(", 1, true) or line:find("]====]", 1, true) then
      flush()
      chunk[#chunk + 1] = statement or text_line_to_lua(line, number)
    else
      plain[#plain + 1] = line
    end
  end
  number = number + 1
  flush()
  return table.concat(chunk, "\n")
end

-- A template as a function of its names, loaded once.
local loaded = {}
local function template_to_function(file, text)
  local known = loaded[file]
  if known and known.text == text then return known.run end
  local run, message = load("local _ENV = ...; " .. template_to_lua(text), "=" .. file, "t", {})
  if not run then error(message, 0) end
  loaded[file] = { text = text, run = run }
  return run
end

-- A value as text. Floats that are whole print as integers; booleans and nil are mistakes.
local function value_to_text(value, file, number)
  if type(value) == "string" then return value end
  if math.type(value) == "integer" then return tostring(value) end
  if math.type(value) == "float" then
    if value == math.floor(value) and math.abs(value) < 2 ^ 53 then
      return string.format("%d", value)
    end
    return string.format("%.9g", value)
  end
  error(string.format("%s:%d: $(...) gave %s, not a number or a string", file, number, type(value)), 0)
end

-- Renders the template `name` with `values`; read(name) gives a template's text or nil. A value that is a
-- function is called when all else has been rendered.
-- Returns text, and two arrays with the file and the line every text line comes from.
function engine.render(name, values, read)
  local lines, files, numbers = {}, {}, {}

  local function render_file(file)
    local text = read(file)
    if not text then error(string.format("template '%s' does not exist", file), 0) end

    local scope = {}
    local names = {
      math = math, string = string, table = table, ipairs = ipairs, pairs = pairs,
      tostring = tostring, error = error,
      part = render_file,
      emit_lines = function(number, plain)
        for line in (plain .. "\n"):gmatch("([^\n]*)\n", 2) do
          lines[#lines + 1], files[#files + 1], numbers[#numbers + 1] = line, file, number
          number = number + 1
        end
      end,
      emit_line = function(number, ...)
        local pieces, late = { ... }, false
        for i = 2, #pieces, 2 do
          if type(pieces[i]) == "function" then late = true
          else pieces[i] = value_to_text(pieces[i], file, number) end
        end
        lines[#lines + 1] = late and pieces or table.concat(pieces)
        files[#files + 1] = file
        numbers[#numbers + 1] = number
      end,
    }
    setmetatable(scope, {
      __index = function(_, key)
        if names[key] ~= nil then return names[key] end
        if values[key] ~= nil then return values[key] end
        error(string.format("undefined template name '%s'", key), 2)
      end,
    })
    template_to_function(file, text)(scope)
  end

  render_file(name)
  for i, line in ipairs(lines) do
    if type(line) == "table" then
      for n, piece in ipairs(line) do
        if type(piece) == "function" then line[n] = value_to_text(piece(), files[i], numbers[i]) end
      end
      lines[i] = table.concat(line)
    end
  end
  return table.concat(lines, "\n") .. "\n", files, numbers
end

-- A table whose missing fields are errors, so that $(config.blok_m) is caught.
function engine.strict(fields, what)
  return setmetatable(fields, {
    __index = function(_, key)
      error(string.format("undefined template name '%s.%s'", what, tostring(key)), 2)
    end,
  })
end

return engine
