# A trace of one rank as a table: when each kernel, copy and wait begins, how long it takes (in us), and
# on which stream it runs.
#
#   offsim predict SCENARIO.yaml --trace trace.json && awk -f docs/examples/timeline.awk trace.json

function value(key,    from, rest)
{
  from = index($0, "\"" key "\":")
  if (!from)
    return ""
  rest = substr($0, from + length(key) + 3)
  sub(/^"/, "", rest)
  sub(/[",}].*/, "", rest)
  return rest
}

# A decimal number rounded to tenths, digit by digit: a locale may have awk read and print a comma.
function tenths(number,    part, whole)
{
  split(number, part, ".")
  whole = part[1] * 10 + int((substr(part[2] "00", 1, 2) + 5) / 10)
  return int(whole / 10) "." whole % 10
}

function place()
{
  return (value("layer") == "" ? "" : "layer " value("layer") " ") \
         (value("tensor") == "" ? value("module") : value("tensor"))
}

/"thread_name"/                            { stream[value("tid")] = substr($0, index($0, "\"args\":{\"name\":\"") + 16) }
/"ph":"X"/ && value("cat") != "user_annotation" && value("cat") != "cuda_runtime" {
  on = stream[value("tid")]
  sub(/ .*/, "", on)
  name = value("name")
  sub(/ \(.*/, "", name)
  line = sprintf("%8s %7s  %-8s %-24s  %s", tenths(value("ts")), tenths(value("dur")), on, name, place())
  sub(/ +$/, "", line)
  print line
}
