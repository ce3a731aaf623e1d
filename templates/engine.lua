-- engine.lua: the template engine.
-- in -> out: template files + a table of values -> text, and for its lines the template lines they came from.
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
local function plain_lines_to_lua(lines, number, count)
  return string.format("emit_lines(%d, %d, [====[.%s]====])", number, count, lines)
end

-- Where the next of these is in the text, from a position on; infinity: nowhere. Positions only grow, and
-- what has been found once holds until it is passed: most lines are looked at for their end alone.
local function finder(text)
  local marks, found = { "//@", "$(", "]====]" }, { 0, 0, 0 }
  return function(position)
    local nearest = math.huge
    for i, mark in ipairs(marks) do
      if found[i] < position then found[i] = text:find(mark, position, true) or math.huge end
      nearest = math.min(nearest, found[i])
    end
    return nearest
  end
end

-- Returns the chunk, and the set of words in its Lua lines and $(...): what the template can read.
local function template_to_lua(text)
  if text:sub(-1) ~= "\n" then text = text .. "\n" end
  local chunk, words, number, position = {}, {}, 0, 1
  local plain, plain_count = 1, 0  -- lines without a mark before this one: where they begin, and how many
  local function flush()
    if plain_count > 0 then
      chunk[#chunk + 1] = plain_lines_to_lua(text:sub(plain, position - 2), number - plain_count, plain_count)
    end
  end
  local next_mark = finder(text)
  local mark = next_mark(1)
  while position <= #text do
    local stop = text:find("\n", position, true)
    number = number + 1
    if mark < stop then
      flush()
      local line = text:sub(position, stop - 1)
      local lua = line:match("^%s*//@(.*)$")
      for word in (lua or line):gmatch("[%a_][%w_]*") do words[word] = true end
      chunk[#chunk + 1] = lua or text_line_to_lua(line, number)
      plain, plain_count = stop + 1, 0
      mark = next_mark(stop + 1)
    else
      plain_count = plain_count + 1
    end
    position = stop + 1
  end
  number = number + 1
  flush()
  return table.concat(chunk, "\n"), words
end

-- A template as a function of its names, and the words in it, loaded once.
local loaded = {}
local function template_to_function(file, text)
  local known = loaded[file]
  if known and known.text == text then return known.run, known.words end
  local chunk, words = template_to_lua(text)
  local run, message = load("local _ENV = ...; " .. chunk, "=" .. file, "t", {})
  if not run then error(message, 0) end
  loaded[file] = { text = text, run = run, words = words }
  return run, words
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
-- A template renders another at this place by part(file, {name = value, ...}): the other sees these values
-- and the standard functions, and nothing else. A value that its text does not name is an error.
-- concept(name, {name = value, ...}) renders parts/name.cu.in in the form that the request has, whose ending
-- is values.forms[name]. The empty form, _none, takes no values.
-- Returns text, and three arrays that describe its runs of lines. A run has consecutive lines of one file:
-- the arrays hold the file, the number of the run's first line in it, and how many lines the run has.
function engine.render(name, values, read)
  local runs, files, numbers, counts = {}, {}, {}, {}

  local function add_run(run, file, number, count)
    local last = #runs + 1
    runs[last], files[last], numbers[last], counts[last] = run, file, number, count
  end

  -- What every template sees.
  local standard = {
    math = math, string = string, table = table, ipairs = ipairs, pairs = pairs, tostring = tostring,
    error = error,
  }

  local function render_file(file, seen, given)
    local text = read(file)
    if not text then error(string.format("template '%s' does not exist", file), 0) end
    local run, words = template_to_function(file, text)
    for key in pairs(given or {}) do
      if not words[key] then error(string.format("template '%s' reads no '%s'", file, key), 2) end
    end

    local own = {
      part = function(other, gives) return render_file(other, gives or {}, gives) end,
      concept = function(other, gives)
        local ending = values.forms[other]
        if ending == "_none" then gives = nil end
        return render_file("parts/" .. other .. ending .. ".cu.in", gives or {}, gives)
      end,
      emit_lines = function(number, count, plain) add_run(plain:sub(2), file, number, count) end,
      emit_line = function(number, ...)
        local pieces, late = { ... }, false
        for i = 2, #pieces, 2 do
          if type(pieces[i]) == "function" then late = true
          else pieces[i] = value_to_text(pieces[i], file, number) end
        end
        add_run(late and pieces or table.concat(pieces), file, number, 1)
      end,
    }
    run(setmetatable({}, {
      __index = function(_, key)
        if own[key] ~= nil then return own[key] end
        if standard[key] ~= nil then return standard[key] end
        if seen[key] ~= nil then return seen[key] end
        error(string.format("undefined template name '%s'", key), 2)
      end,
    }))
  end

  render_file(name, values)
  for i, run in ipairs(runs) do
    if type(run) == "table" then
      for n, piece in ipairs(run) do
        if type(piece) == "function" then run[n] = value_to_text(piece(), files[i], numbers[i]) end
      end
      runs[i] = table.concat(run)
    end
  end
  return table.concat(runs, "\n") .. "\n", files, numbers, counts
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
