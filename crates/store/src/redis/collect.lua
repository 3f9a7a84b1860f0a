-- Removes those of some records that have expired; those that live longer by now are noted for then.
-- KEYS: index by expiry, index by name unless no list shows them, then the records. ARGV: how many indexes, where names begin in
-- keys. Without an index by name the one by expiry has whole keys.
-- Answers which of the records were removed, counted from one.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local indexes, begin = tonumber(ARGV[1]), tonumber(ARGV[2])
local removed = {}
for index = indexes + 1, #KEYS do
  local key = KEYS[index]
  local noted = indexes == 1 and key or string.sub(key, begin)
  local found = redis.call('GET', key)
  local expires = found and tonumber(string.sub(found, 49, 64))
  if found and expires > now then
    redis.call('ZADD', KEYS[1], string.format('%016.0f', expires), noted)
  else
    redis.call('ZREM', KEYS[1], noted)
    local is_over = found and expires ~= 0
    if is_over then
      redis.call('DEL', key)
      removed[#removed + 1] = index - indexes
    end
    if indexes > 1 and (is_over or not found) then redis.call('ZREM', KEYS[2], noted) end
  end
end
return removed
