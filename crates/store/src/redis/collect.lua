-- Removes those of some records that have expired; those that live longer by now are noted for then.
-- KEYS: index by name, index by expiry, then the records. ARGV: length of the keys' common beginning.
-- Answers which of the records were removed, counted from one.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local removed = {}
for index = 3, #KEYS do
  local name = string.sub(KEYS[index], tonumber(ARGV[1]) + 1)
  local found = redis.call('GET', KEYS[index])
  local expires = found and tonumber(string.sub(found, 49, 64))
  if not found then
    redis.call('ZREM', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
  elseif expires == 0 then
    redis.call('ZREM', KEYS[2], name)
  elseif expires <= now then
    redis.call('DEL', KEYS[index])
    redis.call('ZREM', KEYS[1], name)
    redis.call('ZREM', KEYS[2], name)
    removed[#removed + 1] = index - 2
  else
    redis.call('ZADD', KEYS[2], string.format('%016.0f', expires), name)
  end
end
return removed
