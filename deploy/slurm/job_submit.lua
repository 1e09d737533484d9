-- Asks Spillway where a job would best go, when it is submitted, and asks Slurm for that shape. For slurm.conf:
--   JobSubmitPlugins=lua          (this file as job_submit.lua beside slurm.conf)
--
-- slurmctld calls this under its locks, one job at a time, so it may take 20 ms and no more: whatever goes wrong, the job is
-- submitted as it came. It needs the Lua library luasocket; without it nothing is asked, for starting a program from
-- slurmctld would cost more than the advice. Lua 5.1, which Debian's slurmctld has, to 5.4.
--
-- Slurm lets its Lua see and set segments from 25.11.2 on. Before, the user is told which --segment to give, and nothing is
-- set: let users submit through spillway-sbatch.sh instead.
--
-- Settings, in /etc/spillway/job_submit.conf (Lua; every key may be left out):
--   host = "127.0.0.1"; port = 8470
--   token_file = "/etc/spillway/api-token"
--   timeout = 0.02                -- seconds, for all of it
--   apply = true                  -- false: only tell the user and the log
--   use = "segment"               -- "switches": where Slurm is older than 24.05 or its topology is a tree whose leaf
--                                 -- switches are the NVLink domains: --switches is set to how many domains the job is to have
--   class_of = {ml = "train-moe"} -- class by account: one of advise.classes, or a service class that one of them stands for
--   gpus_per_node = 4             -- where the job does not say

local conf = {host = "127.0.0.1", port = 8470, timeout = 0.02, apply = true, use = "segment", class_of = {}, gpus_per_node = 4}
do
	local path = os.getenv("SPILLWAY_JOB_SUBMIT_CONF") or "/etc/spillway/job_submit.conf"
	local chunk = loadfile(path, "t", conf)
	if chunk and setfenv then setfenv(chunk, conf) end -- Lua 5.1 takes the file alone
	if chunk then pcall(chunk) end
	if conf.token_file then
		local f = io.open(conf.token_file)
		if f then
			conf.token = f:read("*l")
			f:close()
		end
	end
end

-- Slurm's "not set" of its 16, 32 and 64 bit numbers, and infinite.
local function number(v)
	v = tonumber(v)
	if not v or v < 0 or v == 0xfffe or v == 0xffff or v >= 0xfffffffe then return nil end
	return v
end

local function quoted(s)
	return '"' .. tostring(s):gsub('[%c"\\]', function(c) return string.format("\\u%04x", c:byte()) end) .. '"'
end

-- How many GPUs a TRES text asks for: "gres/gpu:4", "gres/gpu:gb200:4", "gres:gpu:4".
local function gpus_in(tres)
	local n = tostring(tres or ""):match("gpu[^,]*[:=](%d+)")
	return n and tonumber(n)
end

-- The question for a job, as JSON; nil where there is nothing to ask.
local function question(job)
	local nodes = number(job.min_nodes)
	local per_node = gpus_in(job.tres_per_node)
	local total = gpus_in(job.tres_per_job)
	local per_task, tasks = gpus_in(job.tres_per_task), number(job.num_tasks)
	if not total and per_node and nodes then total = per_node * nodes end
	if not total and per_task and tasks then total = per_task * tasks end
	if not total or total <= (per_node or conf.gpus_per_node) then return nil end -- one node: nothing to split
	local parts = {string.format('"gpus":%d', total)}
	if per_node then parts[#parts + 1] = string.format('"gpus_per_node":%d', per_node) end
	local minutes = number(job.time_limit)
	if minutes and minutes > 0 then parts[#parts + 1] = string.format('"duration_s":%d,"duration_basis":"limit"', minutes * 60) end
	for key, value in pairs({name = job.name, user = job.user_name, tenant = job.reservation or job.account, queue = job.partition}) do
		if value and value ~= "" then parts[#parts + 1] = quoted(key) .. ":" .. quoted(value) end
	end
	local class = conf.class_of[job.account or ""]
	if class then parts[#parts + 1] = '"class":' .. quoted(class) end
	return "{" .. table.concat(parts, ",") .. "}", nodes or math.ceil(total / (per_node or conf.gpus_per_node))
end

-- Posts the question and gives the body of the answer; nil where there is none in time.
local function ask(socket, body)
	local deadline = socket.gettime() + conf.timeout
	local s = socket.tcp()
	local function left()
		s:settimeout(math.max(0.001, deadline - socket.gettime()))
	end
	left()
	if not s:connect(conf.host, conf.port) then
		s:close()
		return nil
	end
	left()
	s:send("POST /v1/advice HTTP/1.0\r\nHost: " .. conf.host .. "\r\nContent-Type: application/json\r\n" ..
		(conf.token and "Authorization: Bearer " .. conf.token .. "\r\n" or "") ..
		"Content-Length: " .. #body .. "\r\n\r\n" .. body)
	local answer = ""
	repeat
		left()
		local chunk, err, partial = s:receive(8192)
		answer = answer .. (chunk or partial or "")
	until not chunk or socket.gettime() > deadline
	s:close()
	local status, text = answer:match("^HTTP/1%.%d (%d+).-\r\n\r\n(.*)$")
	if status ~= "200" or text:sub(-2, -1):match("}") == nil then return nil end
	return text
end

-- What to set of the job for the shape advised: the field, its value and how sbatch calls it; nil for nothing.
local function shape(text, nodes)
	if conf.use == "switches" then
		local _, domains = (text:match('"domains":(%b[])') or ""):gsub('"id":', "")
		if domains > 0 then return "req_switch", domains, "--switches=" .. domains end
		return nil
	end
	local segment = tonumber(text:match('"slurm":%[.-"%-%-segment=(%d+)"'))
	if segment and segment > 1 and nodes % segment == 0 then return "segment_size", segment, "--segment=" .. segment end
end

local function advise(job)
	if number(conf.use == "switches" and job.req_switch or job.segment_size) then return end -- the user has asked for a shape
	local body, nodes = question(job)
	if not body then return end
	local found, socket = pcall(require, "socket")
	if not found then
		slurm.log_info("spillway: luasocket is not installed: no advice is asked for")
		return
	end
	local text = ask(socket, body)
	if not text then return end
	local recommendation = text:match('"recommendation":"([^"]*)"') or ""
	local field, value, flag = shape(text, nodes)
	if not field then return end
	local known = job[field] ~= nil -- or setting it would do nothing
	local apply = conf.apply and known
	slurm.log_info("spillway: %s: %s for %s nodes (%s)%s", job.name or "?", flag, tostring(nodes), recommendation, apply and "" or "; not set")
	if apply then
		job[field] = value
		if (job.admin_comment or "") == "" then
			job.admin_comment = "spillway " .. (text:match('"advice_id":"([^"]*)"') or "?") .. ": " .. flag .. ", " .. recommendation
		end
	end
	slurm.log_user("spillway: %s keeps it on NVLink (%s)%s", flag, recommendation, apply and "" or
		"; not set for you" .. (known and "" or ", for this Slurm's plugins cannot: submit with it"))
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	pcall(advise, job_desc)
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
