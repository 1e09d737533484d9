#!/bin/bash
# sbatch with advice: asks Spillway where the job would best go, asks Slurm for that shape, and submits. Put it before sbatch in
# PATH under that name, or let users call it by its own. It fails open: without an answer within 20 ms, when the job asks for
# a shape itself, or when Slurm refuses the shape, it is sbatch as it came.
#
# Variables:
#   SPILLWAY_URL=http://127.0.0.1:8470
#   SPILLWAY_HEADERS=FILE        # a file with: Authorization: Bearer TOKEN
#   SPILLWAY_TIMEOUT=0.02        # seconds, for all of it
#   SPILLWAY_CLASS=train         # one of advise.classes, or a service class that one of them stands for
#   SPILLWAY_GPUS_PER_NODE=4     # where the job does not say
#   SPILLWAY_USE=segment         # switches: where Slurm is older than 24.05 or its topology is a tree whose leaf switches
#                                # are the NVLink domains: --switches is set to how many domains the job is to have
#   SPILLWAY_SBATCH=/usr/bin/sbatch

url=${SPILLWAY_URL:-http://127.0.0.1:8470}
sbatch=${SPILLWAY_SBATCH:-/usr/bin/sbatch}
per_node_default=${SPILLWAY_GPUS_PER_NODE:-4}

# Reads the options that matter, of the script's #SBATCH lines first and then of the command line, which wins.
read_options() {
	while [ $# -gt 0 ]; do
		local key=$1 value=
		case $1 in
		--*=*) key=${1%%=*} value=${1#*=} ;;
		--nodes | --gpus | --gpus-per-node | --gres | --time | --job-name | --account | --partition | --segment | --switches | -N | -G | -t | -J | -A | -p)
			value=$2
			shift
			;;
		-[NGtJAp]?*) key=${1:0:2} value=${1:2} ;;
		esac
		case $key in
		--nodes | -N) nodes=${value%%-*} ;;
		--gpus | -G) gpus=${value##*:} ;;
		--gpus-per-node) per_node=${value##*:} ;;
		--gres) [[ $value =~ gpu[^,]*:([0-9]+) ]] && per_node=${BASH_REMATCH[1]} ;;
		--time | -t) limit=$value ;;
		--job-name | -J) name=$value ;;
		--account | -A) account=$value ;;
		--partition | -p) queue=$value ;;
		--segment | --switches) shape=$value ;;
		esac
		shift
	done
}

# Seconds of a Slurm time: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
seconds() {
	[[ $1 =~ ^([0-9]+)-([0-9]+)(:([0-9]+))?(:([0-9]+))?$ ]] && {
		echo $((10#${BASH_REMATCH[1]} * 86400 + 10#${BASH_REMATCH[2]} * 3600 + 10#${BASH_REMATCH[4]:-0} * 60 + 10#${BASH_REMATCH[6]:-0}))
		return
	}
	[[ $1 =~ ^([0-9]+):([0-9]+):([0-9]+)$ ]] && {
		echo $((10#${BASH_REMATCH[1]} * 3600 + 10#${BASH_REMATCH[2]} * 60 + 10#${BASH_REMATCH[3]}))
		return
	}
	[[ $1 =~ ^([0-9]+)(:([0-9]+))?$ ]] && echo $((10#${BASH_REMATCH[1]} * 60 + 10#${BASH_REMATCH[3]:-0}))
}

post() { # path, body, seconds
	local headers=()
	[ -r "$SPILLWAY_HEADERS" ] && headers=(--header "@$SPILLWAY_HEADERS")
	curl --silent --fail --noproxy '*' --max-time "$3" --header 'Content-Type: application/json' "${headers[@]}" --data-binary "$2" "$url$1"
}

text() { printf '"%s"' "$(tr -d '\000-\037"\\' <<<"$1")"; }

advise() {
	local script
	for script in "$@"; do # the first argument that is a file is the script; the rest is its own
		if [ -f "$script" ]; then
			local lines
			mapfile -t lines < <(sed -n 's/^#SBATCH[[:space:]]\+//p' "$script" | head -200 | xargs -n1 2>/dev/null)
			read_options "${lines[@]}"
			break
		fi
	done
	local options=() arg
	for arg in "$@"; do
		[ "$arg" = "$script" ] && [ -f "$arg" ] && break
		options+=("$arg")
	done
	read_options "${options[@]}"
	[ -z "$shape" ] || return
	[[ $nodes =~ ^[0-9]*$ && $gpus =~ ^[0-9]*$ && $per_node =~ ^[0-9]*$ ]] || return
	per_node=${per_node:-$per_node_default}
	[ -n "$gpus" ] || { [ -n "$nodes" ] && gpus=$((nodes * per_node)); }
	[ -n "$gpus" ] && [ "$gpus" -gt "$per_node" ] || return
	local body="{\"gpus\":$gpus,\"gpus_per_node\":$per_node,\"user\":$(text "${USER:-}"),\"name\":$(text "${name:-}"),\"tenant\":$(text "${account:-}"),\"queue\":$(text "${queue:-}")"
	local s
	s=$(seconds "$limit")
	[ -n "$s" ] && body+=",\"duration_s\":$s,\"duration_basis\":\"limit\""
	[ -n "$SPILLWAY_CLASS" ] && body+=",\"class\":$(text "$SPILLWAY_CLASS")"
	answer=$(post /v1/advice "$body}" "${SPILLWAY_TIMEOUT:-0.02}") || return
	if [ "${SPILLWAY_USE:-segment}" = switches ]; then
		local rest
		[[ $answer =~ \"domains\":\[([^]]*)\] ]] && rest=${BASH_REMATCH[1]//\"id\":/$'\n'} &&
			flag=--switches=$(($(wc -l <<<"$rest") - 1))
	elif [[ $answer =~ \"slurm\":\[[^]]*\"--segment=([0-9]+)\" ]] && [ "${BASH_REMATCH[1]}" -gt 1 ]; then
		flag=--segment=${BASH_REMATCH[1]}
	fi
	[[ $answer =~ \"advice_id\":\"([^\"]+)\" ]] && id=${BASH_REMATCH[1]}
	[[ $answer =~ \"recommendation\":\"([^\"]+)\" ]] && recommendation=${BASH_REMATCH[1]}
}

advise "$@" 2>/dev/null
if [ -z "$id" ]; then
	exec "$sbatch" "$@"
fi
chosen=0
[ -n "$flag" ] && chosen=1 && echo "spillway: $flag keeps it on NVLink ($recommendation)" >&2
said=$(mktemp) || exec "$sbatch" "$@"
out=$("$sbatch" ${flag:+"$flag"} "$@" 2>"$said")
status=$?
cat "$said" >&2
# An sbatch that is too old, or a segment that is larger than the base block before Slurm 25.11. After any other failure the
# job may have been submitted all the same.
if [ $status -ne 0 ] && [ -n "$flag" ] && grep -q -e 'unrecognized option' -e 'topology configuration is not available' "$said"; then
	echo "spillway: this Slurm does not take $flag: submitting as it came (see SPILLWAY_USE)" >&2
	out=$("$sbatch" "$@")
	status=$?
	chosen=0
fi
rm -f "$said"
[ -n "$out" ] && printf '%s\n' "$out"
# Which job the advice was for, so that it can be graded. Nobody waits for it.
if [ $status -eq 0 ] && [[ $out =~ ([0-9]+) ]]; then
	post /v1/feedback "{\"advice_id\":\"$id\",\"job\":\"${BASH_REMATCH[1]}\",\"chosen\":$chosen}" 2 >/dev/null 2>&1 &
fi
exit $status
