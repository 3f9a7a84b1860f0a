-- What is due by each of some indexes, as of one moment. KEYS: indexes by expiry. ARGV: how many of each at most.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))
local due = {}
for place, index in ipairs(KEYS) do
  due[place] = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, ARGV[1])
end
return due
