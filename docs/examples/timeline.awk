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

function place()
{
  return (value("layer") == "" ? "" : "layer " value("layer") " ") \
         (value("tensor") == "" ? value("module") : value("tensor"))
}

/"thread_name"/                            { stream[value("tid")] = substr($0, index($0, "\"args\":{\"name\":\"") + 16) }
/"ph":"X"/ && value("cat") != "phase" {
  on = stream[value("tid")]
  sub(/ .*/, "", on)
  line = sprintf("%8.1f %7.1f  %-8s %-24s  %s", value("ts"), value("dur"), on, value("name"), place())
  sub(/ +$/, "", line)
  print line
}
