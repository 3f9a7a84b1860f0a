-- One commit: all writes if all checks hold, else none.
--
-- KEYS: counter of the group, its index by name, its index by expiry, then each record once.
-- ARGV: highest revision the caller has seen, channel, group, length of the keys' common beginning, whether a
--       conflict must leave a mark, whether anything is put, number of checks, then the checks
--       (kind, key, revision) and the writes (P key ttl value | T key ttl | D key).
-- A record is a string: created, revision, touches and expiry, 16 digits each, then the value. It is in the
-- index by name exactly as long as it exists. The index by expiry may be early: who collects looks again.
local MAX = 9007199254740991
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function digits(number) return string.format('%016.0f', number) end

local packed, live = {}, {}
local function look(key)
  if packed[key] == nil then
    local found = redis.call('GET', KEYS[key])
    packed[key] = found
    local expires = found and tonumber(string.sub(found, 49, 64))
    live[key] = found and (expires == 0 or expires > now) and found
  end
  return live[key]
end

local at, holds, found = 8, true, {}
for _ = 1, tonumber(ARGV[7]) do
  local kind, key, revision = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  at = at + 3
  local record = look(key)
  found[#found + 1] = record
  if kind == 'A' then
    holds = holds and not record
  elseif kind == 'C' then
    holds = holds and record and string.sub(record, 1, 16) == revision
  else
    holds = holds and record and string.sub(record, 17, 32) == revision
  end
end
local writes = {}
while at <= #ARGV do
  local kind, key = ARGV[at], tonumber(ARGV[at + 1])
  local record = look(key)
  if kind == 'P' then
    writes[#writes + 1] = { kind, key, ARGV[at + 2], ARGV[at + 3] }
    at = at + 4
  elseif kind == 'T' then
    found[#found + 1] = record
    holds = holds and record
    writes[#writes + 1] = { kind, key, ARGV[at + 2] }
    at = at + 3
  else
    writes[#writes + 1] = { kind, key }
    at = at + 2
  end
end

local last = redis.call('GET', KEYS[1])
if not holds then
  if ARGV[5] == '1' and last then
    -- What was found may not be at the replicas yet: waiting for this write is waiting for that too.
    local marked = redis.pcall('SET', KEYS[1], last)
    if marked.err then return marked end
  end
  return { 'X', digits(now), digits(0), unpack(found) }
end

local number = math.max(tonumber(last or '0') + 1, tonumber(ARGV[1]) + 1, now)
if number > MAX then return redis.error_reply('EXHAUSTED the revisions are used up') end
local revision = digits(number)
-- The first write is the one that Redis may refuse: out of memory, read-only, too few replicas. Its refusal is the
-- answer, as if the script itself had been refused. What only deletes
-- or touches begins with a write that needs no memory, and so works when memory is full.
local first
if ARGV[6] == '1' then
  first = redis.pcall('SET', KEYS[1], revision)
else
  first = redis.pcall('PERSIST', KEYS[1])
end
if type(first) == 'table' and first.err then return first end
if ARGV[6] ~= '1' then redis.call('SET', KEYS[1], revision) end

local witnessed, hints = {}, {}
for _, write in ipairs(writes) do
  local kind, key = write[1], write[2]
  local record, name = live[key], string.sub(KEYS[key], tonumber(ARGV[4]) + 1)
  if kind == 'P' then
    local expires = 0
    if write[3] ~= '' then
      expires = math.min(now + tonumber(write[3]), MAX)
      redis.call('ZADD', KEYS[3], digits(expires), name)
    elseif packed[key] and tonumber(string.sub(packed[key], 49, 64)) ~= 0 then
      redis.call('ZREM', KEYS[3], name)
    end
    local created = record and string.sub(record, 1, 16) or revision
    local touches = record and string.sub(record, 33, 48) or digits(0)
    redis.call('SET', KEYS[key], created .. revision .. touches .. digits(expires) .. write[4])
    if not packed[key] then redis.call('ZADD', KEYS[2], 0, name) end
    hints[#hints + 1] = 'P' .. digits(#name) .. name .. digits(#write[4]) .. write[4]
  elseif kind == 'T' then
    local expires = tonumber(string.sub(record, 49, 64))
    if expires ~= 0 then expires = math.min(math.max(expires, now + tonumber(write[3])), MAX) end
    local changed = digits(tonumber(string.sub(record, 33, 48)) + 1) .. digits(expires)
    redis.call('SETRANGE', KEYS[key], 32, changed)
    witnessed[#witnessed + 1] = string.sub(record, 1, 32) .. changed .. string.sub(record, 65)
  else
    if packed[key] then
      redis.call('DEL', KEYS[key])
      redis.call('ZREM', KEYS[2], name)
      redis.call('ZREM', KEYS[3], name)
    end
    if record then hints[#hints + 1] = 'D' .. digits(#name) .. name end
    witnessed[#witnessed + 1] = record
  end
end
if #hints > 0 then redis.call('PUBLISH', ARGV[2], digits(tonumber(ARGV[3])) .. revision .. table.concat(hints)) end
return { 'C', digits(now), revision, unpack(witnessed) }
