#!/usr/bin/env bash
# Reads a data set, a run, its checkpoints and an evaluation by docs/formats.md alone, with h5dump and shell tools, and
# compares what it finds with the tables of the page and with what the program says.
#   tests/docs/formats_test.sh PROGRAM [LAUNCH]      with LAUNCH (slurm/launch.sh) the run has 2 ranks on the tensor axis
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "$1")
ranks=1 launch=()
if [[ $# -gt 1 ]]; then ranks=2 launch=("$(realpath "$2")" $((ranks))); fi
page=docs/formats.md
export OMP_NUM_THREADS=1 LC_ALL=C
work=$(mktemp -d)
trainer=
trap '[[ -z $trainer ]] || kill -9 "$trainer" 2>/dev/null || true; rm -rf "$work"' EXIT
status=0
complain() {
  echo "$page: $*"
  status=1
}
same() { # same WHAT FOUND EXPECTED
  [[ $2 == "$3" ]] || complain "$1 is '$2', '$3' was expected"
}

# ---- the page's tables

# table NAME: the rows of the table after <!-- table: NAME -->, "cell|cell|cell" without backquotes.
table() {
  awk -v marker="<!-- table: $1 -->" '
    $0 == marker { inside = 1; row = 0; next }
    inside && $0 == "<!-- /table -->" { exit }
    inside && ++row > 2 { gsub(/`/, ""); gsub(/^\| *| *\|$/, ""); gsub(/ *\| */, "|"); print }' "$page"
}

# json FILE [LINE]: the leaves of a JSON document, "path<TAB>type<TAB>value"; escapes in strings stay as they are.
json() {
  if [[ $# -gt 1 ]]; then sed -n "$2p" "$1"; else cat "$1"; fi | awk '
    function blank() { while (substr(text, at, 1) ~ /[ \n\t]/) at++ }
    function string(   begin, c) {
      for (begin = ++at; (c = substr(text, at, 1)) != "\""; at++) if (c == "\\") at++
      return substr(text, begin, at++ - begin)
    }
    function leaf(path, type, value) { sub(/^\./, "", path); print path "\t" type "\t" value }
    function value(path,   c, key, n, word) {
      blank(); c = substr(text, at, 1)
      if (c == "\"") { leaf(path, "string", string()); return }
      if (c == "{") {
        at++; blank()
        while (substr(text, at, 1) != "}") {
          blank(); key = string(); blank(); at++; value(path "." key); blank()
          if (substr(text, at, 1) == ",") at++
        }
        at++; return
      }
      if (c == "[") {
        at++; blank(); n = 0
        while (substr(text, at, 1) != "]") { value(path "[" n++ "]"); blank(); if (substr(text, at, 1) == ",") at++ }
        at++; return
      }
      word = ""
      while ((c = substr(text, at, 1)) ~ /[-+.0-9A-Za-z]/) { word = word c; at++ }
      leaf(path, word ~ /^(true|false)$/ ? "boolean" : word == "null" ? "null" : word ~ /^-?[0-9]+$/ ? "integer" : "number", word)
    }
    { text = text $0 "\n" }
    END { at = 1; value("") }'
}

# field LEAVES PATH: the value of one leaf.
field() { awk -F'\t' -v path="$2" '$1 == path { print $3; exit }' <<<"$1"; }

# check_fields TABLE LEAVES: each leaf is in the table with its type, and each row that is not optional is among the leaves.
check_fields() {
  local complaints
  complaints=$(awk -F'\t' -v rows="$(table "$1")" '
    BEGIN {
      count = split(rows, lines, "\n")
      for (i = 1; i <= count; i++) {
        split(lines[i], cells, "|")
        type[cells[1]] = cells[2]
        optional[cells[1]] = lines[i] ~ /only (if|for|in)|absent|null/
      }
    }
    {
      path = $1
      gsub(/\[[0-9]+\]/, "[]", path)
      sub(/^splits\.(train|validation|test)\./, "splits.SPLIT.", path)
      sub(/\.(document|summary|example)_tokens\./, ".LENGTHS.", path)
      sub(/^files\.(train|validation|test)\.h5\./, "files.FILE.", path)
      seen[path] = 1
      if (!(path in type)) { if (!missing[path]++) print "has no row for " path " (" $2 ")" }
      else if (index(type[path], $2) == 0 && !($2 == "integer" && type[path] ~ /number/))
        print path " is of type " $2 ", not " type[path]
    }
    END {
      if (count < 3) print "there is no such table"
      for (path in type) if (!(path in seen) && !optional[path]) print path " is not in the file"
    }' <<<"$2" | sort -u)
  [[ -z $complaints ]] || complain "table '$1':"$'\n'"$complaints"
}

# ---- HDF5

# header FILE: "name type elements offset" of each array and "@name type" of each attribute of the root group.
header() {
  h5dump -p -H "$1" | awk '
    /GROUP "/ { split($0, q, "\""); if (q[2] != "/") group = q[2] "/" }
    /DATASET "/ { split($0, q, "\""); name = group q[2]; kind = "array" }
    /ATTRIBUTE "/ { split($0, q, "\""); name = "@" q[2]; kind = "attribute" }
    /DATATYPE/ {
      type = /STRING/ ? "string" : /U16LE/ ? "uint16" : /I32LE/ ? "int32" : /I64LE/ ? "int64" : $2
      type = /U64LE/ ? "uint64" : /F32LE/ ? "float32" : /16-bit little-endian floating|BFLOAT16LE/ ? "bfloat16" : type
      if (kind == "attribute") print name, type
    }
    /DATASPACE/ && kind == "array" { elements = $0; sub(/.*SIMPLE \{ \( */, "", elements); sub(/ .*/, "", elements) }
    /CONTIGUOUS/ && kind == "array" { contiguous = 1 }
    /OFFSET/ && kind == "array" { print name, type, elements, $2 }
    /H5S_NULL|CHUNKED/ { print name, "is not contiguous" }
    /^   }/ { if (group != "" && !/DATASET/) { group = "" } }'
}
# attribute FILE NAME: its value, escapes as h5dump writes them.
attribute() { h5dump -a "/$2" "$1" | awk '/\(0\): / { sub(/^ *\(0\): /, ""); gsub(/^"|"$/, ""); print }'; }
# numbers FILE ARRAY: one a line.
numbers() { h5dump -y -w 1 -d "/$2" "$1" | sed -n '/DATA {/,/}/p' | grep -oE -- '-?[0-9][-+.e0-9]*'; }

# check_header FILE ATTRIBUTE_TABLE: attributes and their types are those of the page.
check_attributes() {
  local expected found
  expected=$(table "$2" | cut -d'|' -f1,2 | tr '|' ' ' | sed 's/^/@/' | sort)
  found=$(header "$1" | grep '^@' | sort)
  same "the attributes of $(basename "$1")" "$found" "$expected"
}

# ---- a data set

echo "data set"
"$program" prepare --source synthetic --examples 300 --seed 3 --vocab-size 380 --output "$work/data" >/dev/null 2>&1
prepared=$(json "$work/data/prepare.json")
check_fields prepare.json "$prepared"
for split in train validation test; do
  file=$work/data/$split.h5
  check_attributes "$file" "dataset attributes"
  examples=$(attribute "$file" examples) tokens=$(attribute "$file" tokens)
  # shellcheck disable=SC2034  # a table's third column is evaluated with it
  token_block_bytes=$(attribute "$file" token_block_bytes) spans=$(attribute "$file" spans) turns=$(attribute "$file" turns)
  vocabulary_size=$(attribute "$file" vocabulary_size)
  bytes_of_token=$((vocabulary_size <= 65536 ? 2 : 4))
  found=$(header "$file" | grep -v '^@')
  while IFS='|' read -r array type elements text; do
    if [[ $text == *"only in validation.h5 and test.h5"* && $split == train || $array == text/messages ]]; then continue; fi
    if [[ $type == "uint16 or int32" ]]; then
      if ((bytes_of_token == 2)); then type=uint16; else type=int32; fi
    fi
    same "$split.h5: /$array" "$(awk -v array="$array" '$1 == array { print $2, $3 }' <<<"$found")" "$type $((elements))"
  done < <(table "dataset arrays")
  if [[ $split == train ]]; then arrays=9; else arrays=12; fi
  same "$split.h5: number of arrays" "$(grep -c . <<<"$found")" $arrays
  while read -r array type elements offset; do
    case $type in uint16) size=2 ;; int32) size=4 ;; *) size=8 ;; esac
    if [[ $type != string ]] && ((elements * size >= 4096 && offset % 4096 != 0)); then
      complain "$split.h5: /$array begins at byte $offset"
    fi
  done <<<"$found"

  # The index by the page: the last offset is the number of tokens, a pair has one span up to its end.
  mapfile -t offset < <(numbers "$file" example_offset)
  mapfile -t cut < <(numbers "$file" cut_begin)
  mapfile -t separator < <(numbers "$file" cut_end)
  mapfile -t target < <(numbers "$file" target_begin)
  mapfile -t target_end < <(numbers "$file" target_end)
  same "$split.h5: target_offset" "$(numbers "$file" target_offset | tr '\n' ' ')" "$(seq -s ' ' 0 "$examples") "
  sum=0
  for ((i = 0; i < examples; i++)); do
    ((sum += offset[i + 1] - target[i])) || true
    ((cut[i] == offset[i] + 1 && cut[i] <= separator[i] && separator[i] < target[i] &&
      target[i] < target_end[i] && target_end[i] == offset[i + 1])) ||
      complain "$split.h5: example $i is ${offset[i]} ${cut[i]} ${separator[i]} ${target[i]} ${target_end[i]} ${offset[i + 1]}"
  done
  same "$split.h5: the last example_offset" "${offset[examples]}" "$tokens"
  same "$split.h5: the targets" "$sum" "$(attribute "$file" targets)"
  for key in examples tokens targets; do
    same "prepare.json: $key of $split" "$(field "$prepared" "splits.$split.$key")" "$(attribute "$file" $key)"
  done
  same "content_hash of $split" "$(field "$prepared" "files.$split.h5.content_hash")" "$(attribute "$file" content_hash)"
  begin=$(awk '$1 == "tokens" { print $4 }' <<<"$found")
  same "prepare.json: tokens_offset of $split" "$(field "$prepared" "files.$split.h5.tokens_offset")" "$begin"
  same "prepare.json: bytes of $split" "$(field "$prepared" "files.$split.h5.bytes")" "$(wc -c <"$file")"

  # The tokens as bytes at their place: BOS first, ids below the vocabulary, the same as h5dump gives.
  od -A n -v -t u$bytes_of_token -w$bytes_of_token -j "$begin" -N $((tokens * bytes_of_token)) "$file" | tr -d ' ' >"$work/ids"
  numbers "$file" tokens | cmp -s - "$work/ids" || complain "$split.h5: the bytes at $begin are not /tokens"
  awk -v most="$vocabulary_size" '$1 >= most { bad = 1 } END { exit bad }' "$work/ids" ||
    complain "$split.h5: an id above the vocabulary"
done
same "format_version" "$(attribute "$file" format_version)" 3
same "prepare.json: format_version" "$(field "$prepared" format_version)" 1
same "tokenizer_sha256" "$(attribute "$file" tokenizer_sha256)" "$(sha256sum <"$work/data/tokenizer.model" | cut -d' ' -f1)"

# ---- a run: metrics, LOCK

echo "run"
cat >"$work/tiny.toml" <<TEXT
[run]
directory = "$work/run"
device = "cpu"
[model]
hidden_size = 24
intermediate_size = 40
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[mesh]
tensor = $ranks
[data]
directory = "$work/data"
sequence_length = 192
[train]
steps = 2
global_batch_sequences = 2
validate_every = 2
[optimizer]
learning_rate = 1e-3
[precision]
compute = "float32"
[checkpoint]
every_steps = 1
TEXT
run_ranks() { "${launch[@]}" "$program" "$@"; }
run_ranks train "$work/tiny.toml" >/dev/null
# Warnings: the number of steps changed, and the rate.
run_ranks train "$work/tiny.toml" train.steps=3 optimizer.learning_rate=5e-4 --allow-changes >/dev/null
grep -q '"changes":\[{"key":"train.steps","old":"2","new":"3"},{"key":"optimizer.learning_rate","old":"0.001","new":"0.0005"}\]' "$work/run/metrics.jsonl" ||
  complain "no changes in the run's metrics.jsonl"
hosts=
if ((ranks > 1)); then # a window has five steps, and the first step of a start is in none
  run_ranks train "$work/tiny.toml" run.directory="$work/ten" train.steps=10 checkpoint.every_steps=0 >/dev/null
  grep '"event":"hosts"' "$work/ten/metrics.jsonl" >>"$work/run/metrics.jsonl"
  hosts=hosts
fi
line=0
while read -r _; do
  ((++line))
  leaves=$(json "$work/run/metrics.jsonl" "$line")
  event=$(field "$leaves" event)
  check_fields "$event" "$leaves"
  events+="$event "
  if [[ $event == validation && $(field "$leaves" step) == 2 ]]; then validation=$(field "$leaves" loss); fi
  if [[ $event == start ]]; then parameters=$(field "$leaves" parameters); fi
done <"$work/run/metrics.jsonl"
for event in start step validation save checkpoint warning end $hosts; do
  [[ " $events" == *" $event "* ]] || complain "no event '$event' in the run's metrics.jsonl"
done

"$program" train "$work/tiny.toml" run.directory="$work/long" mesh.tensor=1 train.steps=1000000000 >/dev/null &
trainer=$!
for ((i = 0; i < 2000; i++)); do
  if [[ -s $work/long/metrics.jsonl ]]; then break; fi
  sleep 0.1
done
same "the keys of LOCK" "$(cut -d' ' -f1 "$work/long/LOCK" | tr '\n' ' ')" "$(table LOCK | cut -d'|' -f1 | tr '\n' ' ')"
same "LOCK: pid" "$(awk '$1 == "pid" { print $2 }' "$work/long/LOCK")" "$trainer"
kill -USR1 "$trainer"
code=0
wait "$trainer" || code=$?
trainer=
same "the exit code after SIGUSR1" "$code" 75
[[ ! -e $work/long/LOCK ]] || complain "LOCK is there after the end"

# ---- plots: the page's snippets, on this run, as far as their programs are here

echo "plots"
# snippet LANGUAGE: the first block of that language in the section, with the run's directory for RUN.
snippet() {
  awk -v fence="\`\`\`$1" '
    /^### / && !open { section = $0 == "### Plot a run" }
    section && /^```/ { if (wanted) exit; open = !open; wanted = open && $0 == fence; next }
    wanted' "$page" | sed "s|RUN|$work/run|g"
}
snippet python >"$work/plot.py"
snippet '' >"$work/plot.sh"
python=${RIPSTOP_PYTHON:-python3}
grep -q savefig "$work/plot.py" || complain "there is no Python snippet"
grep -q '^jq ' "$work/plot.sh" || complain "there is no jq snippet"
if "$python" -c 'import pandas, matplotlib' 2>/dev/null; then
  (cd "$work" && MPLBACKEND=Agg "$python" plot.py) || complain "the Python snippet fails"
  [[ $(head -c 4 "$work/run.png" | tail -c 3) == PNG ]] || complain "the Python snippet makes no picture"
fi
if command -v jq >/dev/null; then
  (cd "$work" && bash -c "$(grep '^jq ' plot.sh)") || complain "the jq snippet fails"
  same "steps of the jq snippet" "$(cut -f1 "$work/run.tsv" | tr '\n' ' ')" "1 2 3 "
fi
if command -v gnuplot >/dev/null; then
  (cd "$work" && bash plot.sh) || complain "the gnuplot snippet fails"
fi

# ---- checkpoints

# little FILE OFFSET BYTES: an unsigned number of the sidecar.
little() { od -A n -t u"$3" -j "$2" -N "$3" "$1" | tr -d ' '; }
# place ROW [I [A [B]]]: the first column of a row of the sidecar's table, in bytes.
# shellcheck disable=SC2034  # the column is evaluated with these names
place() {
  local i=${2:-0} a=${3:-0} b=${4:-0}
  echo $((${sidecar[$1]%%|*}))
}
mapfile -t sidecar < <(table sidecar)
round_up() { echo $((($1 + $2 - 1) / $2 * $2)); }

# layout LEAVES RANK: "unit elements skip" of the arrays of a rank's file by the page's rules.
layout() {
  local leaves=$1 R P F T r s f t u m p rows columns cut grain at end shared n of_stage=0
  R=$(field "$leaves" mesh.replicate) P=$(field "$leaves" mesh.pipeline)
  F=$(field "$leaves" mesh.fsdp) T=$(field "$leaves" mesh.tensor)
  t=$(($2 % T)) f=$(($2 / T % F)) s=$(($2 / T / F % P)) r=$(($2 / T / F / P))
  for ((u = 0; ; u++)); do
    local name
    name=$(field "$leaves" "units[$u].name")
    if [[ -z $name ]]; then break; fi
    if (($(field "$leaves" "units[$u].stage") != s)); then continue; fi
    at=0 shared=0
    for ((m = 0; ; m++)); do
      if [[ -z $(field "$leaves" "units[$u].tensors[$m][0].name") ]]; then break; fi
      end=$at
      for ((p = 0; ; p++)); do
        local part="units[$u].tensors[$m][$p]"
        rows=$(field "$leaves" "$part.rows")
        if [[ -z $rows ]]; then break; fi
        columns=$(field "$leaves" "$part.columns") cut=$(field "$leaves" "$part.cut") grain=$(field "$leaves" "$part.grain")
        if ((grain == 1)); then grain=8; fi
        if [[ $cut == rows ]]; then rows=$(round_up $(((rows + T - 1) / T)) "$grain"); fi
        if [[ $cut == columns ]]; then columns=$(round_up $(((columns + T - 1) / T)) "$grain"); fi
        ((end += rows * columns))
      done
      at=$(round_up "$end" 256)
      if [[ $cut == none ]]; then shared=$at; fi
    done
    n=$(($(round_up "$at" $((256 * F))) / F))
    local begin=$((f * n))
    if ((t > 0 && begin < shared)); then begin=$shared; fi
    if ((of_stage++ % R == r && begin < (f + 1) * n)); then echo "$name $(((f + 1) * n - begin))"; fi
  done
}

check_checkpoint() { # check_checkpoint DIRECTORY
  local leaves file rank expected found a i array offsets elements
  leaves=$(json "$1/manifest.json")
  local moments
  moments=$(field "$leaves" moments)
  check_fields manifest.json "$leaves"
  [[ $(tail -c 58 "$1/manifest.json") == *' "hash": "xxh3-128:'????????????????????????????????'"'$'\n}' ]] ||
    complain "$1/manifest.json does not end as the page says"
  same "files of $1" "$(cd "$1" && echo *)" \
    "manifest.json$(awk -F'\t' '$1 ~ /^files.*rank$/ { printf " rank_%05d.blocks rank_%05d.h5", $3, $3 }' <<<"$leaves")"
  for ((i = 0; ; i++)); do
    rank=$(field "$leaves" "files[$i].rank")
    if [[ -z $rank ]]; then break; fi
    file=$1/$(printf 'rank_%05d' "$rank")
    same "$file.h5: bytes" "$(wc -c <"$file.h5")" "$(field "$leaves" "files[$i].bytes")"
    same "$file.blocks: bytes" "$(wc -c <"$file.blocks")" "$(field "$leaves" "files[$i].sidecar_bytes")"
    check_attributes "$file.h5" "rank attributes"
    expected=$(layout "$leaves" "$rank" | while read -r unit elements; do
      echo "$unit/master float32 $elements"
      for state in first_moment second_moment; do echo "$unit/$state $moments $elements"; done
    done)
    found=$(header "$file.h5" | grep -v '^@' | sort -n -k 4)
    same "$file.h5: arrays in the order of the file" "$(cut -d' ' -f1-3 <<<"$found")" "$expected"
    # The sidecar, byte by byte: where each row of the table says.
    a=$(little "$file.blocks" "$(place 4)" 8)
    same "$file.blocks: magic" "$(head -c $(($(place 0) + 8)) "$file.blocks" | tail -c 8)" RIPBLOCK
    same "$file.blocks: version" "$(little "$file.blocks" "$(place 1)" 4)" 1
    same "$file.blocks: bytes of a block" "$(little "$file.blocks" "$(place 2)" 4)" 1048576
    same "$file.blocks: bytes of the file" "$(little "$file.blocks" "$(place 3)" 8)" "$(wc -c <"$file.h5")"
    same "$file.blocks: number of arrays" "$a" "$(grep -c . <<<"$expected")"
    offsets='' elements=''
    for ((array = 0; array < a; array++)); do
      offsets+=$(little "$file.blocks" "$(place 5 $array)" 8)$'\n'
      elements+=$(little "$file.blocks" "$(place 6 $array)" 8)$'\n'
    done
    same "$file.blocks: offsets" "$offsets" "$(cut -d' ' -f4 <<<"$found")"$'\n'
    same "$file.blocks: elements" "$elements" "$(cut -d' ' -f3 <<<"$found")"$'\n'
    same "$file.blocks: length" "$(wc -c <"$file.blocks")" "$(place 7 0 "$a" $((($(wc -c <"$file.h5") + 1048575) / 1048576)))"
  done
  if ((i == 0)); then complain "$1: no files"; fi
}

echo "versions"
golden=tests/golden/$(sed -n 's/^project(ripstop VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)  # the page tells of this version alone
golden_files=$(table versions | cut -d'|' -f3 | tr ', ' '\n\n' | while read -r pattern; do
  if [[ -n $pattern ]]; then compgen -G "$golden/$pattern" || echo "no $golden/$pattern"; fi
done | sort)
same "the files of $golden in the page's table" "$golden_files" "$(find "$golden" -type f | LC_ALL=C sort)"

echo "takeovers"
takeovers=$(json "$work/run/checkpoints/takeovers.json")
check_fields takeovers.json "$takeovers"
same "the first takeover" "$(field "$takeovers" "takeovers[0].number") from step $(field "$takeovers" "takeovers[0].step")" "1 from step 0"

echo "checkpoints"
for directory in "$golden"/*/checkpoints/step_* "$work"/run/checkpoints/step_00000003; do
  check_checkpoint "$directory"
  "$program" checkpoint verify "$directory" >/dev/null || complain "$directory: ripstop finds damage"
done
manifest=$(json "$directory/manifest.json")
inspected=$("$program" checkpoint inspect "$directory" --json >"$work/inspected" && json "$work/inspected")
for key in step updates tokens; do same "inspect: $key" "$(field "$inspected" $key)" "$(field "$manifest" $key)"; done
same "logical parameters" "$parameters" \
  "$(awk -F'\t' '/^units.*rows/ { rows = $3 } /^units.*columns/ { sum += rows * $3 } END { print sum }' <<<"$manifest")"
same "data.content_hash" "$(field "$manifest" data.content_hash)" "$(attribute "$work/data/train.h5" content_hash)"
manifest=$(json "$work/run/checkpoints/step_00000002/manifest.json")
same "best.value" "$(field "$manifest" best.value)" "$validation"
# Values at their place: norm weights began as ones and have taken three small steps; behind them lies padding.
slice=$(round_up $((380 / ranks)) 8)
numbers "$directory/rank_00000.h5" head/master | awk -v rows=$((slice < 380 ? slice : 380)) '
  NR <= 24 && ($1 < 0.99 || $1 > 1.01) { bad = "norm.weight[" NR - 1 "] is " $1 }
  NR > 24 && NR <= 256 && $1 != 0 { bad = "the padding behind norm.weight holds " $1 }
  NR > 256 && NR <= 256 + 24 * rows { if ($1 > 0.95) large++; if ($1 != 0) weights++ }
  NR > 256 + 24 * rows && $1 != 0 { bad = "the padding behind output.weight holds " $1 }
  END {
    if (weights < 24 * (rows - 1) || large > 24) bad = "output.weight is not where the page says"
    if (bad) print bad
    exit bad != ""
  }' ||
  complain "values of head/master"
if ((ranks == 2)); then # the other slice: 188 rows, without the norm, then padding
  numbers "$directory/rank_00001.h5" head/master | awk -v rows=$((380 - slice)) '
    NR <= 24 * rows && $1 != 0 { weights++ }
    NR > 24 * rows && $1 != 0 { bad = 1 }
    END { exit bad || weights < 24 * (rows - 1) }' || complain "values of head/master of rank 1"
fi

# ---- an evaluation

echo "evaluation"
"$program" evaluate "$work/run" --split test --limit 2 >/dev/null
evaluation=$(echo "$work"/run/evaluation/step_*-test-limit2)
check_fields settings.json "$(json "$evaluation/settings.json")"
check_fields scores.jsonl "$(json "$evaluation/scores.jsonl" 2)"
scores=$(json "$evaluation/scores.json")
check_fields scores.json "$scores"
same "scores.json: examples" "$(field "$scores" examples)" 2
same "scores.json: split_examples" "$(field "$scores" split_examples)" "$(attribute "$work/data/test.h5" examples)"
for line in 1 2; do
  leaves=$(json "$evaluation/predictions.jsonl" $line)
  check_fields predictions.jsonl "$leaves"
  same "predictions.jsonl: example" "$(field "$leaves" example)" $((line - 1))
  summary=$(h5dump -y -d /text/summary -s $((line - 1)) -c 1 "$work/data/test.h5" | sed -n '/DATA {/{n;s/^ *"//;s/"$//;p}')
  same "predictions.jsonl: reference" "$(field "$leaves" reference)" "$summary"
done
exit $status
