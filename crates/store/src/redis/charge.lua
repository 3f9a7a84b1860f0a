-- One charge: all claims on their meters if all find room, else none.
--
-- It is `baton_core::meter::settle`, function by function and under the same names: why something is counted as it is,
-- is said there. A law compares the two, charge by charge.
--
-- KEYS: the counter of each group, the meters, the memo if there is one, then of each group its index by name and its
--       index by expiry.
-- ARGV: highest revision the caller has seen, whether an answer that writes nothing must leave a mark, where names begin in
--       keys, number of groups, how many milliseconds longer than it is worth a meter is kept, the memo's digest, its time
--       to live (empty if there is no memo) and its group, then for each claim its text and its group.
-- Records are those of commit.lua. Times are milliseconds where they are a meter's, microseconds where they are a record's.
--
-- Numbers are floating point: whole ones below 2^53 are exact, and so are their remainders. What comes out larger is only
-- ever compared with something smaller, and rounding keeps that order.
--
-- All of this is run for each charge, also what makes the functions. So what every charge needs is at hand as a local, and
-- the rest goes by its full name: a function costs by how many locals it refers to.
local MAX, PRODUCT_MAX, ROWS_MAX, LOG_MAX, ZERO = 9007199254740991, 4503599627370496, 1000, 1000, '0000000000000000'
local call, sub, match, format, fmod = redis.call, string.sub, string.match, string.format, math.fmod

local function floored(number, divisor) return (number - math.fmod(number, divisor)) / divisor end
local function ceiled(number, divisor)
  local rest = fmod(number, divisor)
  if rest == 0 then return number / divisor end
  return (number - rest) / divisor + 1
end

-- What is asked, and what is stored --------------------------------------------------------------------------------------

-- `own` is what a meter that follows the claim has of it in its own text.
local function claim_of(text)
  local own, version, algorithm, limit, window, capacity, first, second, third, drops, take, amount, extra, row = match(text,
    '^((%d+) (%a) (%d+) (%d+)) (%d+) (%d+) (%d+) (%d+) ([01]) (%a) (%d+) (%d+) (.+)$')
  local follows_calendar = second ~= '0'
  local offset = follows_calendar and window or first
  local said
  if row ~= '- - - 0 0 0 0' then
    local id, owner, kind, ttl, sequence, spent, kept =
      string.match(row, '^([^ ]+) ([^ ]+) ([LHP]) (%d+) (%d+) (%d+) (%d+)$')
    said = {
      id = id, owner = owner, kind = kind, ttl = ttl + 0, sequence = sequence + 0, spent = spent + 0, kept = kept + 0,
    }
  end
  return {
    own = '1 ' .. own .. ' ' .. offset, version = version + 0, algorithm = algorithm, limit = limit + 0, window = window + 0,
    offset = offset + 0, capacity = capacity + 0, edges = follows_calendar and { first + 0, second + 0, third + 0 },
    drops = drops == '1', take = take, amount = amount + 0, extra = extra + 0, row = said,
  }
end

-- The meter in a record; nothing if it can't be read. What is seldom computed with stays text: since when it counts, and the
-- log, whose words are time and amount in turn, from `head` on.
local function meter_of(record)
  local version, algorithm, limit, window, offset, since, at, start, current, previous, count, place = match(record,
    '^1 (%d+) ([bsfli]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()', 65)
  if not place or limit == '0' or window == '0' then return nil end
  local log, rows = {}, {}
  for word = 1, 2 * count do
    log[word], place = match(record, '^ (%d+)()', place)
    if not place then return nil end
  end
  count, place = match(record, '^ (%d+)()', place)
  for index = 1, tonumber(count or 0) do
    local text, id, kind, amount, spent, sequence, expires
    text, id, kind, amount, spent, sequence, expires, place =
      match(record, '^( ([^ ]+) [^ ]+ ([LHP]) (%d+) (%d+) (%d+) (%d+))()', place)
    if not place then return nil end
    rows[index] = {
      text = text, id = id, kind = kind, amount = amount + 0, spent = spent + 0, sequence = sequence + 0,
      expires = expires + 0,
    }
  end
  if place ~= #record + 1 or #log > 2 * LOG_MAX or #rows > ROWS_MAX then return nil end
  return {
    version = version + 0, algorithm = algorithm, limit = limit + 0, window = window + 0, offset = offset + 0,
    since = since, at = at + 0, start = start + 0, current = current + 0, previous = previous + 0, log = log, head = 1,
    rows = rows,
  }
end

local function text_of(meter, claim)
  local log, rows, words, count = meter.log, '', '', 0
  if log[meter.head] then
    words = ' ' .. table.concat(log, ' ', meter.head)
    count = (#log + 1 - meter.head) / 2
  end
  if meter.rows[1] then
    local texts = {}
    for index, row in ipairs(meter.rows) do texts[index] = row.text end
    rows = table.concat(texts)
  end
  return format('%s %s %.0f %.0f %.0f %.0f %d%s %d%s', claim.own, meter.since, meter.at, meter.start, meter.current,
    meter.previous, count, words, #meter.rows, rows)
end

-- How it is counted, and forgotten ---------------------------------------------------------------------------------------

local function start_every(moment, window, offset)
  return math.max(moment - fmod(fmod(moment, window) + window - offset, window), 0)
end

local function start_of(claim, moment)
  local edges = claim.edges
  if not edges then return start_every(moment, claim.window, claim.offset) end
  return moment >= edges[3] and edges[3] or moment >= edges[2] and edges[2] or edges[1]
end

local function fresh(claim, moment, rows)
  return {
    version = claim.version, algorithm = claim.algorithm, limit = claim.limit, window = claim.window, offset = claim.offset,
    since = string.format('%.0f', moment), at = moment, start = start_of(claim, moment), current = 0, previous = 0, log = {},
    head = 1, rows = rows,
  }
end

local function has_shape(meter, claim)
  return meter.algorithm == claim.algorithm and meter.window == claim.window and meter.offset == claim.offset
end

local function advance(meter, claim, moment)
  if moment <= meter.at then return end
  local elapsed, algorithm = moment - meter.at, meter.algorithm
  meter.at = moment
  if algorithm == 'b' then
    local left = meter.current - elapsed * meter.limit
    meter.current = left > 0 and left or 0
  elseif algorithm == 'f' or algorithm == 's' then
    local start = meter.start
    if has_shape(meter, claim) then
      start = start_of(claim, moment)
    elseif meter.offset ~= meter.window then
      start = start_every(moment, meter.window, meter.offset)
    end
    -- A window that is yet to begin, as somebody's calendar says whose clock is ahead, ends none.
    if start > meter.start and start <= moment then
      local slides = algorithm == 's' and start - meter.start <= meter.window
      meter.previous = slides and meter.current or 0
      meter.current = 0
      meter.start = start
    end
  elseif algorithm == 'l' then
    -- Times only grow, so what is over is at the head.
    local log, head = meter.log, meter.head
    while log[head] and log[head] + meter.window <= moment do head = head + 2 end
    meter.head = head
  end
end

local function used(meter)
  local algorithm = meter.algorithm
  if algorithm == 'b' then return ceiled(meter.current, meter.window) end
  if algorithm == 'f' then return meter.current end
  if algorithm == 's' then
    local left = meter.window - math.min(math.max(meter.at - meter.start, 0), meter.window)
    return ceiled(meter.previous * left, meter.window) + meter.current
  end
  local log, sum = meter.log, 0
  for word = meter.head + 1, #log, 2 do sum = sum + log[word] end
  return sum < MAX and sum or MAX
end

local function add(meter, amount)
  if amount == 0 then return end
  local algorithm, window = meter.algorithm, meter.window
  if algorithm == 'b' then
    local level = amount * window
    if level > MAX then level = MAX - math.fmod(MAX, window) end
    level = meter.current + level
    meter.current = level < MAX and level or MAX
  elseif algorithm == 'f' then
    local sum = meter.current + amount
    meter.current = sum < MAX and sum or MAX
  elseif algorithm == 's' then
    local sum = meter.current + amount
    if sum * window > PRODUCT_MAX then sum = floored(PRODUCT_MAX, window) end
    meter.current = sum
  elseif algorithm == 'l' then
    local log, moment = meter.log, string.format('%.0f', meter.at)
    local last = #log
    if last > meter.head and (last + 1 - meter.head >= 2 * LOG_MAX or log[last - 1] == moment) then
      log[last - 1] = moment
      log[last] = string.format('%.0f', math.min(log[last] + amount, MAX))
    else
      log[last + 1] = moment
      log[last + 2] = string.format('%.0f', amount)
    end
  end
end

local function credit(meter, amount, moment)
  if moment < meter.since + 0 or moment > meter.at then return 0 end
  local algorithm, window, log = meter.algorithm, meter.window, meter.log
  if algorithm == 'b' then
    amount = math.min(amount * window, MAX - math.fmod(MAX, window))
    amount = math.min(math.max(amount - (meter.at - moment) * meter.limit, 0), meter.current)
    meter.current = meter.current - amount
    return ceiled(amount, window)
  elseif algorithm == 'f' or algorithm == 's' then
    if moment < meter.start then return 0 end
    amount = math.min(amount, meter.current)
    meter.current = meter.current - amount
    return amount
  end
  for word = meter.head, #log, 2 do
    if tonumber(log[word]) == moment then
      local left = math.max(log[word + 1] - amount, 0)
      amount = log[word + 1] - left
      log[word + 1] = string.format('%.0f', left)
      if left == 0 then
        table.remove(log, word)
        table.remove(log, word)
      end
      return amount
    end
  end
  return 0
end

-- What one claim does to one meter ---------------------------------------------------------------------------------------

local function outstanding(meter)
  local rows, sum = meter.rows, 0
  for place = 1, #rows do sum = sum + rows[place].amount end
  return sum
end

local function burn(meter, claim, moment)
  local rows, gone = meter.rows, 0
  while rows[gone + 1] and rows[gone + 1].expires <= moment do
    gone = gone + 1
    local row = rows[gone]
    if not (row.kind == 'P' or (row.kind == 'L' and claim.drops) or meter.algorithm == 'i') then
      advance(meter, claim, row.expires)
      add(meter, row.amount)
    end
  end
  if gone > 0 then meter.rows = { unpack(rows, gone + 1) } end
end

local function adopt(meter, claim)
  if has_shape(meter, claim) then
    -- What was taken before leaked faster than a credit would reckon.
    if meter.algorithm == 'b' and claim.limit < meter.limit then meter.since = format('%.0f', meter.at) end
    meter.version, meter.limit = claim.version, claim.limit
    return meter
  end
  local counted = math.min(used(meter), claim.limit)
  meter = fresh(claim, meter.at, meter.rows)
  -- Of what was taken in this millisecond before, a part may just have been cut off.
  meter.since = format('%.0f', math.min(meter.at + 1, MAX))
  add(meter, counted)
  return meter
end

local function keep(meter, said, amount, now)
  if amount == 0 then return end
  local rows, expires = meter.rows, math.min(now + said.ttl, MAX)
  local place = #rows + 1
  while place > 1 and rows[place - 1].expires > expires do place = place - 1 end
  local text = string.format(' %s %s %s %.0f %.0f %.0f %.0f', said.id, said.owner, said.kind, amount, said.spent,
    said.sequence, expires)
  table.insert(rows, place, { text = text, amount = amount, expires = expires })
end

local function booked_after(meter, capacity, amount)
  local above = outstanding(meter) - capacity + amount
  if above > meter.limit then return nil end
  local wait = ceiled(math.max(meter.current + above * meter.window, 0), meter.limit)
  return wait <= meter.window and wait or nil
end

local function room_of(meter, claim)
  local room = claim.capacity - used(meter) - outstanding(meter)
  return room > 0 and room or 0
end

-- How much, and after how long.
local function granted(meter, claim, room)
  local take, amount = claim.take, claim.amount
  if take == 'a' or take == 't' then return amount <= room and amount or 0, 0 end
  if take == 's' then
    local sharing = 1
    for _, row in ipairs(meter.rows) do
      if row.kind == 'L' and not (claim.row and row.id == claim.row.id) then sharing = sharing + 1 end
    end
    local fair = math.max(floored(room, 2 * sharing), 1)
    return math.min(amount, math.max(floored(meter.limit, 20), 1), fair, room), 0
  end
  if take == 'f' then return amount, 0 end
  if take == 'b' then
    local wait = booked_after(meter, claim.capacity, amount)
    if wait and wait <= claim.extra then return amount, wait end
  end
  return 0, 0
end

-- Brings the meter to now, takes what the claim may have, and gives the meter, how much that was, and after how long.
local function charge(meter, claim, now)
  if now < meter.at then now = meter.at end
  burn(meter, claim, now)
  advance(meter, claim, now)
  meter = adopt(meter, claim)
  local said, amount, wait = claim.row, 0, 0
  if said then
    local kept = 0
    for place, row in ipairs(meter.rows) do
      if row.id == said.id then
        if said.sequence <= row.sequence then return meter, said.sequence == row.sequence and row.amount or 0, 0 end
        table.remove(meter.rows, place)
        local spent = math.max(said.spent - row.spent, 0)
        add(meter, spent)
        kept = math.min(said.kept, math.max(row.amount - spent, 0))
        break
      end
    end
    if #meter.rows < ROWS_MAX then amount, wait = granted(meter, claim, math.max(room_of(meter, claim) - kept, 0)) end
    keep(meter, said, kept + amount, now)
  elseif claim.take == 'c' then
    amount = credit(meter, claim.amount, claim.extra)
  else
    amount, wait = granted(meter, claim, room_of(meter, claim))
    add(meter, amount)
  end
  return meter, amount, wait
end

-- Never less than what the function says; by how little more is of no matter.
local function worth(meter)
  local last, worth = meter.rows[#meter.rows], 2 * meter.window
  if last then worth = worth + math.max(last.expires - meter.at, 0) end
  if meter.algorithm == 'b' then
    worth = worth + (outstanding(meter) * meter.window + meter.current) / meter.limit + 2
  end
  return worth
end

-- What is found ----------------------------------------------------------------------------------------------------------

local groups, claims = ARGV[4] + 0, (#ARGV - 8) / 2
local memo = ARGV[7] ~= '' and groups + claims + 1
local last = memo or groups + claims
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = (now - fmod(now, 1000)) / 1000
local stamp = format('%016.0f', now)
local packed, live = call('MGET', unpack(KEYS, 1, last)), {}
for key = groups + 1, last do
  local record = packed[key]
  local expires = record and sub(record, 49, 64)
  live[key] = record and (expires == ZERO or expires > stamp) and record
end

-- What becomes of it -----------------------------------------------------------------------------------------------------

local kind, verdict, place, follows, lines, writes = 'A', 'C', 0, 0, '', {}
if memo and live[memo] then kind, claims = 'M', 0 end
for index = 1, claims do
  local key, claim = groups + index, claim_of(ARGV[7 + 2 * index])
  local record = live[key]
  local meter, amount, wait
  if record then meter = meter_of(record) else meter = fresh(claim, now_ms, {}) end
  if not meter then return redis.error_reply("UNREADABLE a meter can't be read by this version") end
  if meter.version > claim.version then
    verdict, place, follows, lines = 'O', index - 1, meter.version, ''
    break
  end
  meter, amount, wait = charge(meter, claim, now_ms)
  if verdict == 'C' and amount < claim.amount and (claim.take == 'a' or claim.take == 'b') then
    verdict, place = 'R', index - 1
  end
  local value = text_of(meter, claim)
  lines = lines .. format('\n%.0f %.0f ', amount, wait) .. value
  -- Who only looks leaves no trace.
  if claim.amount ~= 0 or claim.row then
    local enough = now + (worth(meter) + ARGV[5] / 2) * 1000
    writes[#writes + 1] =
      { key = key, group = ARGV[8 + 2 * index] + 0, value = value, enough = enough, expires = enough + ARGV[5] * 500 }
  end
end
local answer = format('%s %.0f %d %.0f', verdict, now_ms, place, follows) .. lines
if kind == 'M' then
  answer = sub(live[memo], 65)
elseif memo then
  writes[#writes + 1] = { key = memo, group = ARGV[8] + 0, value = ARGV[6] .. ' ' .. answer, expires = now + ARGV[7] }
end

if kind == 'M' or verdict ~= 'C' or #writes == 0 then
  for group = 1, ARGV[2] == '1' and groups or 0 do
    if packed[group] then
      -- What was found may not be at the replicas yet: waiting for this write is waiting for all of that too.
      local marked = redis.pcall('SET', KEYS[group], packed[group])
      if marked.err then return marked end
      break
    end
  end
  return { kind, stamp, ZERO, answer }
end

-- What is written --------------------------------------------------------------------------------------------------------

local sets, revisions, highest = {}, {}, ZERO
local named, ending
for index = 1, #writes do
  local write = writes[index]
  local key, group = write.key, write.group
  local record, revision = live[key], revisions[group]
  if not revision then
    local number = math.max((packed[group] or 0) + 1, ARGV[1] + 1, now)
    if number > MAX then return redis.error_reply('EXHAUSTED the revisions are used up') end
    revision = number == now and stamp or format('%016.0f', number)
    if revision > highest then highest = revision end
    revisions[group] = revision
    sets[#sets + 1] = KEYS[group]
    sets[#sets + 1] = revision
  end
  sets[#sets + 1] = KEYS[key]
  if record and sub(record, 49, 64) + 0 >= math.min(write.enough, MAX) then
    -- An expiry that is far enough stays, so that the index need not be written each time.
    sets[#sets + 1] = sub(record, 1, 16) .. revision .. sub(record, 33, 64) .. write.value
  else
    local header = record and sub(record, 1, 16) .. revision .. sub(record, 33, 48) or revision .. revision .. ZERO
    local expires, name = format('%016.0f', math.min(write.expires, MAX)), sub(KEYS[key], ARGV[3] + 0)
    sets[#sets + 1] = header .. expires .. write.value
    ending = ending or {}
    ending[#ending + 1] = { group, expires, name }
    if not packed[key] then
      named = named or {}
      named[#named + 1] = { group, 0, name }
    end
  end
end

-- The first write is the one that Redis may refuse, as in commit.lua: its refusal is the answer.
local first = redis.pcall('MSET', unpack(sets))
if first.err then return first end
for _, new in ipairs(named or {}) do call('ZADD', KEYS[last + 2 * new[1] - 1], new[2], new[3]) end
for _, new in ipairs(ending or {}) do call('ZADD', KEYS[last + 2 * new[1]], new[2], new[3]) end
return { 'A', stamp, highest, answer }
