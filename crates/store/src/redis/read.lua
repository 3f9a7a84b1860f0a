-- The records under KEYS as of one moment, after the time; what has expired is absent.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answer = { 'S', string.format('%016.0f', now), string.format('%016.0f', 0) }
for index, key in ipairs(KEYS) do
  local found = redis.call('GET', key)
  local expires = found and tonumber(string.sub(found, 49, 64))
  answer[index + 3] = found and (expires == 0 or expires > now) and found
end
return answer
