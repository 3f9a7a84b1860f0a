-- One commit: all writes if all checks hold, else none.
--
-- KEYS: counter of the group, its index by name, its index by expiry, then each record once.
-- ARGV: highest revision the caller has seen, channel, what a hint says before its revision and after it, where names begin
--       in keys, whether a conflict must leave a mark, whether anything is put, number of checks, then the checks
--       (kind, key, revision; what is touched is checked to be there) and the writes (P key ttl value | T key ttl | D key).
-- A record is a string: created, revision, touches and expiry, 16 digits each, then the value. It is in the
-- index by name exactly as long as it exists. The index by expiry may be early: who collects looks again.
--
-- Calls are what costs: everything is read by one, and all that is put, removed or noted goes by one of each kind.
local MAX, ZERO = 9007199254740991, '0000000000000000'
local call, sub, tonumber = redis.call, string.sub, tonumber
local function digits(number) return string.format('%016.0f', number) end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = digits(now)
-- What isn't a string, as the indexes, is answered like what isn't there.
local packed = call('MGET', unpack(KEYS))
local live = {}
for key = 4, #KEYS do
  local found = packed[key]
  local expires = found and sub(found, 49, 64)
  live[key] = found and (expires == ZERO or expires > stamp) and found
end

local at, holds, found = 9, true, {}
for check = 1, tonumber(ARGV[8]) do
  local kind, record, revision = ARGV[at], live[tonumber(ARGV[at + 1])], ARGV[at + 2]
  at = at + 3
  found[check] = record
  if kind == 'A' then
    holds = holds and not record
  elseif kind == 'C' then
    holds = holds and record and sub(record, 1, 16) == revision
  elseif kind == 'R' then
    holds = holds and record and sub(record, 17, 32) == revision
  else
    holds = holds and record
  end
end

local last = packed[1]
if not holds then
  if ARGV[6] == '1' and last then
    -- What was found may not be at the replicas yet: waiting for this write is waiting for that too.
    local marked = redis.pcall('SET', KEYS[1], last)
    if marked.err then return marked end
  end
  return { 'X', stamp, ZERO, unpack(found) }
end

local number = math.max((last or 0) + 1, ARGV[1] + 1, now)
if number > MAX then return redis.error_reply('EXHAUSTED the revisions are used up') end
local revision = digits(number)

local sets, named, ending = { KEYS[1], revision }, {}, {}
local gone, unnamed, unending, touched, witnessed = {}, {}, {}, {}, {}
while at <= #ARGV do
  local kind, key = ARGV[at], tonumber(ARGV[at + 1])
  local before, record, name = packed[key], live[key], sub(KEYS[key], tonumber(ARGV[5]))
  if kind == 'P' then
    local ttl, expires = ARGV[at + 2], ZERO
    if ttl ~= '' then
      expires = digits(math.min(now + ttl, MAX))
      ending[#ending + 1] = expires
      ending[#ending + 1] = name
    elseif before and sub(before, 49, 64) ~= ZERO then
      unending[#unending + 1] = name
    end
    local header = record and sub(record, 1, 16) .. revision .. sub(record, 33, 48) or revision .. revision .. ZERO
    sets[#sets + 1] = KEYS[key]
    sets[#sets + 1] = header .. expires .. ARGV[at + 3]
    if not before then
      named[#named + 1] = 0
      named[#named + 1] = name
    end
    at = at + 4
  elseif kind == 'T' then
    local expires = tonumber(sub(record, 49, 64))
    if expires ~= 0 then expires = math.min(math.max(expires, now + ARGV[at + 2]), MAX) end
    local changed = digits(sub(record, 33, 48) + 1) .. digits(expires)
    touched[#touched + 1] = { KEYS[key], changed }
    witnessed[#witnessed + 1] = sub(record, 1, 32) .. changed .. sub(record, 65)
    at = at + 3
  else
    if before then
      gone[#gone + 1] = KEYS[key]
      unnamed[#unnamed + 1] = name
      if sub(before, 49, 64) ~= ZERO then unending[#unending + 1] = name end
    end
    witnessed[#witnessed + 1] = record
    at = at + 2
  end
end

-- The first write is the one that Redis may refuse: out of memory, read-only, too few replicas. Its refusal is the
-- answer, as if the script itself had been refused. What only deletes
-- or touches begins with a write that needs no memory, and so works when memory is full.
local first
if ARGV[7] == '1' then
  first = redis.pcall('MSET', unpack(sets))
else
  first = redis.pcall('PERSIST', KEYS[1])
end
if type(first) == 'table' and first.err then return first end
if ARGV[7] ~= '1' then call('SET', KEYS[1], revision) end
for _, touch in ipairs(touched) do call('SETRANGE', touch[1], 32, touch[2]) end
if #gone > 0 then
  call('DEL', unpack(gone))
  call('ZREM', KEYS[2], unpack(unnamed))
end
if #unending > 0 then call('ZREM', KEYS[3], unpack(unending)) end
if #named > 0 then call('ZADD', KEYS[2], unpack(named)) end
if #ending > 0 then call('ZADD', KEYS[3], unpack(ending)) end
if ARGV[4] ~= '' then call('PUBLISH', ARGV[2], ARGV[3] .. revision .. ARGV[4]) end
return { 'C', stamp, revision, unpack(witnessed) }
