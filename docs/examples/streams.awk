# The order of ops in a printed plan: the kernels of a layer as one line, and between the layers what the
# streams wait for and copy, as the host issues it. Repetitions are counted; "within" means that it is
# issued between kernels of the layer.
#
#   offsim plan SCENARIO.yaml | awk -f docs/examples/streams.awk

function layer_of_line(    at)
{
  at = match($0, /@ layer [0-9]+/)
  return at ? substr($0, at + 2, RLENGTH - 2) : "outside the layers"
}

function note(text)
{
  if (!(text in count))
    order[++notes] = text
  count[text]++
}

function print_notes(before,    i)
{
  for (i = 1; i <= notes; i++)
    print before order[i] (count[order[i]] > 1 ? " x" count[order[i]] : "")
  forget_notes()
}

function forget_notes()
{
  split("", count)
  notes = 0
}

function keep_within(    i)
{
  for (i = 1; i <= notes; i++) {
    if (!(order[i] in within_count))
      within_order[++withins] = order[i]
    within_count[order[i]] += count[order[i]]
  }
  forget_notes()
}

function finish_layer(    i)
{
  if (label == "")
    return
  printf "  compute: %s", label
  for (i = 1; i <= withins; i++)
    printf "%s%s x%d", i == 1 ? "; within: " : ", ", within_order[i], within_count[within_order[i]]
  print ""
  split("", within_count)
  withins = 0
  label = ""
}

$1 == "kernel" && $2 == "compute" && active {
  if (layer_of_line() == label) {
    keep_within()
    next
  }
  finish_layer()
  print_notes("    ")
  label = layer_of_line()
}

$1 == "record" { stream_of[$3] = $2 }
$1 == "wait" && stream_of[$3] != $2 { note($2 " waits for " stream_of[$3]) }
$1 == "kernel" && $2 == "pack" { note("pack copies on the device") }
$1 == "host_wait" { note("the host waits for " stream_of[$3]) }
$1 == "d2h" { note($2 " copies to the host") }
$1 == "h2d" { note($2 " copies back") }
$1 == "disk_write" { note($2 " writes a file") }
$1 == "disk_read" { note($2 " reads a file") }

/^(forward|backward)/ {
  finish_layer()
  print_notes("    ")
  active = 1
  print
}

/^finish/ {
  finish_layer()
  print_notes("    ")
  active = 0
}
