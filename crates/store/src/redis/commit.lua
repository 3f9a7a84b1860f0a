-- Commits, one after the other: each with all of its writes if all of its checks hold, else with none of them.
--
-- KEYS: the counter of each group, then each record once, then of each group its index by name and its index by expiry, then
--       the index by expiry of what no list shows, unless that is in its group's too.
-- ARGV: highest revision the caller has seen, the channel of hints, the channel that only the caller hears (empty if every
--       hint is to be published), where names begin in keys, how many groups, whether conflicts must leave a mark, whether
--       there is that last key, the commits, then the values that they put, in order.
-- A commit is the place of its counter in KEYS (2 bytes), how many checks (1), how many bytes its writes take here (2), how
-- many values they put (1), how many they are (1); then the checks (kind, place; C and R with a revision; what is touched is
-- checked to be there) and the writes (kind, place; P and T with a time to live; F is put for ever, D is deleted). A kind is
-- small for what no list shows; v is such a one that goes by itself. Numbers that are compared or stored are 16 digits.
-- A record is a string: created, revision, touches and expiry, 16 digits each, then the value. What lists show is in the
-- index by name exactly as long as it exists. The index by expiry has its name, the one of what no list shows its whole key:
-- both may be early, or of what is gone, and who collects looks again. What goes by itself has an expiry at the server
-- instead, a little later than its own.
-- The answer is the time, whether hints were published, and for each commit C, its revision and what it touched or deleted, or
-- X and what was checked or touched; a record with its length before it, in 4 bytes.
--
-- Calls are what costs, and texts and tables that are made: everything is read by one call, all decisions are made on what was
-- read, and of what they come to all that is put goes by one call, all that is removed, and all that is noted in the index
-- they share. Bytes are read without `struct`, and ends of lists are counted and not looked for.
local MAX, ZERO, NOTHING = 9007199254740991, '0000000000000000', '\0\0\0\0'
local ABSENT, CREATED, FOREVER, PUT, TOUCH, VANISHING, SMALL = 65, 67, 70, 80, 84, 86, 32
local call, sub, byte, KEYS, ARGV = redis.call, string.sub, string.byte, KEYS, ARGV
local function digits(number) return string.format('%016.0f', number) end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- Seconds have ten digits until the year 2286.
local stamp = time[1] .. sub('000000', #time[2] + 1) .. time[2]
local floor, channel, own, begin, commits = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[8]
local ends = ARGV[7] == '1' and KEYS[#KEYS]
-- The last key before the indexes.
local last_place = #KEYS - 2 * ARGV[5] - ARGV[7]
-- What isn't a string is answered like what isn't there.
local stored = call('MGET', unpack(KEYS, 1, last_place))
-- Records as the commits so far leave them; what was done to each, as its commit calls it; the places of these in order, and
-- their counters' places.
local live, done, changed, home, changes = { unpack(stored, 1, last_place) }, {}, {}, {}, 0
for place = ARGV[5] + 1, last_place do
  local record = live[place]
  local expires = record and sub(record, 49, 64)
  if expires and expires ~= ZERO and expires <= stamp then live[place] = false end
end
local latest, expiries, hints, is_heard = {}, {}, {}, nil
local answers, answered, value, at, puts, mark = { stamp, '0' }, 2, 8, 1, false, nil

local function end_after(ttl)
  local expires = expiries[ttl]
  if not expires then
    expires = digits(math.min(now + ttl, MAX))
    expiries[ttl] = expires
  end
  return expires
end

local function show(record)
  answered = answered + 1
  if record then
    answers[answered] = struct.pack('>I4', #record)
    answered = answered + 1
    answers[answered] = record
  else
    answers[answered] = NOTHING
  end
end

-- Whether anybody but the caller hears hints. Both channels are subscribed to by one command, so the caller counts in both or
-- in neither.
local function others_hear()
  local heard = own ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel, own)
  return not heard or not heard[4] or heard[2] > heard[4]
end

local function text(of) return string.format('%016.0f', #of) .. of end

while at <= #commits do
  local high, low, checks, more, bytes, values, writes = byte(commits, at, at + 6)
  local counter, first, holds = 256 * high + low, at + 7, true
  at = first
  for _ = 1, checks do
    local kind, high, low = byte(commits, at, at + 2)
    local record = live[256 * high + low]
    at = at + 3
    if kind == ABSENT then
      holds = holds and not record
    elseif kind == TOUCH then
      holds = holds and record
    else
      local from = kind == CREATED and 1 or 17
      holds = holds and record and sub(record, from, from + 15) == sub(commits, at, at + 15)
      at = at + 16
    end
  end
  answered = answered + 1
  if not holds then
    mark = mark or stored[counter] and counter
    answers[answered] = 'X'
    local check = first
    while check < at do
      local kind, high, low = byte(commits, check, check + 2)
      show(live[256 * high + low])
      check = check + ((kind == ABSENT or kind == TOUCH) and 3 or 19)
    end
    at, value = at + 256 * more + bytes, value + values
  else
    local last, revision = latest[counter] or stored[counter], stamp
    if last and last >= stamp or floor >= stamp then
      local number = math.max((last or 0) + 1, floor + 1, now)
      if number > MAX then return redis.error_reply('EXHAUSTED the revisions are used up') end
      revision = digits(number)
    end
    latest[counter] = revision
    answers[answered] = 'C' .. revision
    if is_heard == nil then is_heard = others_hear() end
    local hint = is_heard and {}
    for _ = 1, writes do
      local how, high, low = byte(commits, at, at + 2)
      local place, kind = 256 * high + low, how > 96 and how - SMALL or how
      local record = live[place]
      at = at + 3
      if not done[place] then
        changes = changes + 1
        changed[changes], home[changes] = place, counter
      end
      if kind == PUT or kind == FOREVER or kind == VANISHING then
        local expires = ZERO
        if kind ~= FOREVER then
          expires = end_after(sub(commits, at, at + 15))
          at = at + 16
        end
        value = value + 1
        live[place] = record and sub(record, 1, 16) .. revision .. sub(record, 33, 48) .. expires .. ARGV[value]
          or revision .. revision .. ZERO .. expires .. ARGV[value]
        done[place], puts = how, true
        if hint then hint[#hint + 1] = 'P' .. text(sub(KEYS[place], begin)) .. text(ARGV[value]) end
      elseif kind == TOUCH then
        local expires, later = sub(record, 49, 64), end_after(sub(commits, at, at + 15))
        at = at + 16
        if expires ~= ZERO and later > expires then expires = later end
        record = sub(record, 1, 32) .. digits(sub(record, 33, 48) + 1) .. expires .. sub(record, 65)
        live[place], done[place] = record, done[place] or how
        show(record)
      else
        live[place], done[place] = false, how
        show(record)
        if hint then hint[#hint + 1] = 'D' .. text(sub(KEYS[place], begin)) end
      end
    end
    if hint and hint[1] then
      -- A key is the prefix, the group in braces, a colon, an equals sign and the name.
      local group = '0000000000000' .. sub(KEYS[counter], begin - 6, begin - 4)
      hints[#hints + 1] = group .. revision .. table.concat(hint)
    end
  end
end

-- The first write is the one that Redis may refuse: out of memory, read-only, too few replicas. Its refusal is the
-- answer, as if the script itself had been refused. What only deletes
-- or touches begins with a write that needs no memory, and so works when memory is full.
local counter = next(latest)
local first
if not counter then
  -- What was found may not be at the replicas yet: waiting for this write is waiting for that too.
  if ARGV[6] == '1' and mark then first = redis.pcall('SET', KEYS[mark], stored[mark]) end
elseif puts then
  local sets, count = {}, 0
  for place, number in pairs(latest) do
    sets[count + 1], sets[count + 2], count = KEYS[place], number, count + 2
  end
  for change = 1, changes do
    local place = changed[change]
    local how = done[place]
    if how == FOREVER or how == PUT or how == PUT + SMALL or how == FOREVER + SMALL then
      sets[count + 1], sets[count + 2], count = KEYS[place], live[place], count + 2
    end
  end
  first = redis.pcall('MSET', unpack(sets, 1, count))
else
  first = redis.pcall('PERSIST', KEYS[counter])
end
if type(first) == 'table' and first.err then return first end
if not puts then
  for place, number in pairs(latest) do call('SET', KEYS[place], number) end
end
-- What the server removes by itself it may remove in the millisecond after, not before: the record's own expiry counts.
-- As a text, and once for all that end together: a call that is given a number writes it out as if it were a fraction.
local vanishing = {}
local function vanishes_at(record)
  local expires = sub(record, 49, 61)
  local text = vanishing[expires]
  if not text then
    text = string.format('%.0f', expires + 1)
    vanishing[expires] = text
  end
  return text
end
local gone, ending, ended = {}, {}, {}
for change = 1, changes do
  local place = changed[change]
  local before, record, how = stored[place], live[place], done[place]
  local key, by_expiry, is_listed = KEYS[place], last_place + 2 * home[change], how <= 96
  local kind = is_listed and how or how - SMALL
  if kind == TOUCH then
    call('SETRANGE', key, 32, sub(record, 33, 64))
    -- Nothing happens to what has no expiry at the server.
    if not is_listed then call('PEXPIREAT', key, vanishes_at(record), 'GT') end
  elseif kind == VANISHING then
    call('SET', key, record, 'PXAT', vanishes_at(record))
  else
    if before and not record then gone[#gone + 1] = key end
    local is_ending = kind == PUT and record
    local was_ending = not is_ending and before and sub(before, 49, 64) ~= ZERO
    if not is_listed and ends then
      if is_ending then
        ending[#ending + 1] = sub(record, 49, 64)
        ending[#ending + 1] = key
      elseif was_ending then
        ended[#ended + 1] = key
      end
    elseif is_listed or is_ending or was_ending then
      local name = sub(key, begin)
      if is_listed and record and not before then call('ZADD', KEYS[by_expiry - 1], '0', name) end
      if is_listed and before and not record then call('ZREM', KEYS[by_expiry - 1], name) end
      if is_ending then call('ZADD', KEYS[by_expiry], sub(record, 49, 64), name) end
      if was_ending then call('ZREM', KEYS[by_expiry], name) end
    end
  end
end
if gone[1] then call('DEL', unpack(gone)) end
if ending[1] then call('ZADD', ends, unpack(ending)) end
if ended[1] then call('ZREM', ends, unpack(ended)) end
for _, hint in ipairs(hints) do call('PUBLISH', channel, hint) end
if is_heard then answers[2] = '1' end
return table.concat(answers)
