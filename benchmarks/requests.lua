-- Script for wrk: sends requests of one kind, and prints one line of JSON.
-- Usage: wrk … URL -- KIND FIRST_ID
-- The ids of creates begin at FIRST_ID + 2: wrk asks once for a request that it does not send. The
-- plants that are read are the next 1,000.

-- The first plants of a server have the ids above a multiple of this.
local SERVER = 1e10
local number, first = 0, 0
local prefix = ""

local function body(id)
    return '{"id":' .. id .. ',"name":"Monstera","tag":"indoor"}'
end

local function post(id)
    return wrk.format("POST", prefix .. "/plants", nil, body(string.format("%d", id)))
end

local function get(path, id)
    return wrk.format("GET", prefix .. string.format(path, id))
end

local kinds = {
    create = function() return post(first + number) end,
    create_with_id = function()
        wrk.headers["X-Request-ID"] = string.format("%032d", number)
        return post(first + number)
    end,
    create_and_read = function()
        wrk.headers["X-Request-ID"] = string.format("%032d", number)
        if math.random(2) == 1 then return post(first + number) end
        return get("/plants/%d", first - first % SERVER + 10 + number % 900)
    end,
    create_and_close = function()
        wrk.headers["Connection"] = "close"
        return post(first + number)
    end,
    refused_400 = function() return wrk.format("POST", prefix .. "/plants", nil, body("null")) end,
    refused_401 = function()
        wrk.headers["Authorization"] = "Bearer wrong"
        return post(first + number)
    end,
    read = function() return get("/plants/%d", first + 10 + number % 900) end,
    read_same = function() return get("/plants/%d", first + 100) end,
    page = function() return get("/plants?limit=100&after=%d", first + 10 + number % 900) end,
    page_same = function() return get("/plants?limit=100&after=%d", first + 100) end,
}

function init(arguments)
    wrk.headers["Authorization"] = "Bearer s3cret"
    if not arguments[1]:find("^read") and not arguments[1]:find("^page") then
        wrk.headers["Content-Type"] = "application/json"
    end
    prefix = wrk.path == "/" and "" or wrk.path
    make, first = kinds[arguments[1]], tonumber(arguments[2])
end

function request()
    number = number + 1
    return make()
end

function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '{"answers":%d,"seconds":%f,"refused":%d,"lost":%d,"p50":%f,"p99":%f}\n',
        summary.requests, summary.duration / 1e6, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
