-- Script for wrk: sends creates, each with a new id above FIRST_ID, and prints one line of JSON.
-- Usage: wrk … -- TOKEN FIRST_ID [differ]
-- With null as FIRST_ID, every body has the id null and is not a NewPlant.
-- With GET as FIRST_ID, every request is a GET without a body.
-- With "differ", every create has another X-Request-ID.

local id, differ

function init(arguments)
    wrk.method = "POST"
    wrk.headers["Authorization"] = "Bearer " .. arguments[1]
    wrk.headers["Content-Type"] = "application/json"
    id = tonumber(arguments[2])
    differ = arguments[3]
    if arguments[2] == "GET" then
        wrk.method = "GET"
    end
end

function request()
    if wrk.method == "GET" then
        return wrk.format()
    end
    local written = "null"
    if id then
        id = id + 1
        written = string.format("%d", id)
    end
    if differ then
        wrk.headers["X-Request-ID"] = written
    end
    return wrk.format(nil, nil, nil, '{"id":' .. written .. ',"name":"Monstera","tag":"indoor"}')
end

function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '{"answers":%d,"seconds":%f,"refused":%d,"lost":%d,"p50":%f,"p99":%f,"p99_9":%f}\n',
        summary.requests, summary.duration / 1e6, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3))
end
