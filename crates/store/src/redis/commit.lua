-- Commits, one after the other: each with all of its writes if all of its checks hold, else with none of them.
--
-- KEYS: the counter of each group, then each record once, then of each group its index by name and its index by expiry.
-- ARGV: highest revision the caller has seen, the channel of hints, the channel that only the caller hears (empty if every
--       hint is to be published), where names begin in keys, how many groups, whether conflicts must leave a mark, the commits,
--       then the values that they put, in order.
-- A commit is the place of its counter in KEYS (2 bytes), how many checks (1), how many bytes its writes take here (2), how
-- many values they put (1), how many they are (1); then the checks (kind, place; C and R with a revision; what is touched is
-- checked to be there) and the writes (kind, place; P and T with a time to live; F is put for ever, D is deleted). A kind is
-- small for what no list shows; v is such a one that goes by itself. Numbers that are compared or stored are 16 digits.
-- A record is a string: created, revision, touches and expiry, 16 digits each, then the value. What lists show is in the
-- index by name exactly as long as it exists. The index by expiry may be early: who collects looks again. What goes by itself
-- has an expiry at the server instead, a little later than its own.
-- The answer is the time, whether hints were published, and for each commit C, its revision and what it touched or deleted, or
-- X and what was checked or touched; a record with its length before it, in 4 bytes.
--
-- Calls are what costs: everything is read by one, all decisions are made on what was read, and of what they come to all
-- that is put goes by one call, and all that is removed.
local MAX, ZERO, NOTHING = 9007199254740991, '0000000000000000', '\0\0\0\0'
local ABSENT, CREATED, FOREVER, PUT, TOUCH, VANISHING, SMALL = 65, 67, 70, 80, 84, 86, 32
local call, sub, field, KEYS, ARGV = redis.call, string.sub, struct.unpack, KEYS, ARGV
local function digits(number) return string.format('%016.0f', number) end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- Seconds have ten digits until the year 2286.
local stamp = time[1] .. sub('000000', #time[2] + 1) .. time[2]
local floor, channel, own, begin, commits = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[7]
-- The last key before the indexes.
local last_place = #KEYS - 2 * ARGV[5]
-- What isn't a string is answered like what isn't there.
local stored = call('MGET', unpack(KEYS, 1, last_place))
-- Records as the commits so far leave them, what was done to each, the places of these in order, and their counters' places.
local live, done, changed, home, unlisted = {}, {}, {}, {}, {}
local latest, ends, hints, is_heard = {}, {}, {}, nil
local answers, answered, value, at, puts, mark = { stamp, '0' }, 2, 7, 1, false, nil

local function record_at(place)
  local record = live[place]
  if record == nil then
    record = stored[place]
    local expires = record and sub(record, 49, 64)
    record = record and (expires == ZERO or expires > stamp) and record
    live[place] = record
  end
  return record
end

local function end_after(ttl)
  local expires = ends[ttl]
  if not expires then
    expires = digits(math.min(now + ttl, MAX))
    ends[ttl] = expires
  end
  return expires
end

local function answer(text)
  answered = answered + 1
  answers[answered] = text
end

local function show(record)
  if record then
    answer(struct.pack('>I4', #record))
    answer(record)
  else
    answer(NOTHING)
  end
end

-- Whether anybody but the caller hears hints. Both channels are subscribed to by one command, so the caller counts in both or
-- in neither.
local function others_hear()
  if is_heard == nil then
    local heard = own ~= '' and redis.pcall('PUBSUB', 'NUMSUB', channel, own)
    is_heard = not heard or not heard[4] or heard[2] > heard[4]
  end
  return is_heard
end

local function text(of) return string.format('%016.0f', #of) .. of end

while at <= #commits do
  local counter, checks, bytes, values, writes
  counter, checks, bytes, values, writes, at = field('>HBHBB', commits, at)
  local found, holds = {}, true
  for check = 1, checks do
    local kind, place
    kind, place, at = field('>BH', commits, at)
    local record = record_at(place)
    found[check] = record
    if kind == ABSENT then
      holds = holds and not record
    elseif kind == TOUCH then
      holds = holds and record
    else
      local first = kind == CREATED and 1 or 17
      holds = holds and record and sub(record, first, first + 15) == sub(commits, at, at + 15)
      at = at + 16
    end
  end
  if not holds then
    mark = mark or stored[counter] and counter
    answer('X')
    for check = 1, checks do show(found[check]) end
    at, value = at + bytes, value + values
  else
    local last, revision = latest[counter] or stored[counter], stamp
    if last and last >= stamp or floor >= stamp then
      local number = math.max((last or 0) + 1, floor + 1, now)
      if number > MAX then return redis.error_reply('EXHAUSTED the revisions are used up') end
      revision = digits(number)
    end
    latest[counter] = revision
    answer('C')
    answer(revision)
    local hint = others_hear() and {}
    for _ = 1, writes do
      local kind, place
      kind, place, at = field('>BH', commits, at)
      local record = record_at(place)
      if kind > 96 then
        kind = kind - SMALL
        unlisted[place] = true
      end
      if not done[place] then
        changed[#changed + 1] = place
        home[place] = counter
      end
      if kind == PUT or kind == FOREVER or kind == VANISHING then
        local expires = ZERO
        if kind ~= FOREVER then
          expires = end_after(sub(commits, at, at + 15))
          at = at + 16
        end
        value = value + 1
        local head = record and sub(record, 1, 16) .. revision .. sub(record, 33, 48) or revision .. revision .. ZERO
        live[place], done[place], puts = head .. expires .. ARGV[value], kind, true
        if hint then hint[#hint + 1] = 'P' .. text(sub(KEYS[place], begin)) .. text(ARGV[value]) end
      elseif kind == TOUCH then
        local expires, later = sub(record, 49, 64), end_after(sub(commits, at, at + 15))
        at = at + 16
        if expires ~= ZERO and later > expires then expires = later end
        record = sub(record, 1, 32) .. digits(sub(record, 33, 48) + 1) .. expires .. sub(record, 65)
        live[place], done[place] = record, done[place] or TOUCH
        show(record)
      else
        live[place], done[place] = false, kind
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
local counter, revision = next(latest)
local first
if not counter then
  -- What was found may not be at the replicas yet: waiting for this write is waiting for that too.
  if ARGV[6] == '1' and mark then first = redis.pcall('SET', KEYS[mark], stored[mark]) end
elseif puts then
  local sets = {}
  for place, number in pairs(latest) do
    sets[#sets + 1] = KEYS[place]
    sets[#sets + 1] = number
  end
  for _, place in ipairs(changed) do
    if done[place] == PUT or done[place] == FOREVER then
      sets[#sets + 1] = KEYS[place]
      sets[#sets + 1] = live[place]
    end
  end
  first = redis.pcall('MSET', unpack(sets))
else
  first = redis.pcall('PERSIST', KEYS[counter])
end
if type(first) == 'table' and first.err then return first end
if not puts then
  for place, number in pairs(latest) do call('SET', KEYS[place], number) end
end
-- What the server removes by itself it may remove in the millisecond after, not before: the record's own expiry counts.
local function vanishes_at(record) return sub(record, 49, 61) + 1 end
local gone = {}
for _, place in ipairs(changed) do
  local before, record, name = stored[place], live[place], sub(KEYS[place], begin)
  local by_expiry = last_place + 2 * home[place]
  local by_name = by_expiry - 1
  local ended = before and sub(before, 49, 64) ~= ZERO
  if done[place] == TOUCH then
    call('SETRANGE', KEYS[place], 32, sub(record, 33, 64))
    -- Nothing happens to what has no expiry at the server.
    if unlisted[place] then call('PEXPIREAT', KEYS[place], vanishes_at(record), 'GT') end
  elseif done[place] == VANISHING then
    call('SET', KEYS[place], record, 'PXAT', vanishes_at(record))
  elseif record then
    local expires = sub(record, 49, 64)
    if not before and not unlisted[place] then call('ZADD', KEYS[by_name], 0, name) end
    if expires ~= ZERO then
      call('ZADD', KEYS[by_expiry], expires, name)
    elseif ended then
      call('ZREM', KEYS[by_expiry], name)
    end
  elseif before then
    gone[#gone + 1] = KEYS[place]
    if not unlisted[place] then call('ZREM', KEYS[by_name], name) end
    if ended then call('ZREM', KEYS[by_expiry], name) end
  end
end
if gone[1] then call('DEL', unpack(gone)) end
for _, hint in ipairs(hints) do call('PUBLISH', channel, hint) end
if is_heard then answers[2] = '1' end
return table.concat(answers)
