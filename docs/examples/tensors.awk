# Which tensor moves when, in the part of a plan that a phase and a place name: kernels, copies with their
# tensors, who waits for what, and when the device memory of a saved tensor goes. "for X": for X's copy.
#
#   offsim plan SCENARIO.yaml | awk -v phase=forward -v place='layer 1 mlp' -f docs/examples/tensors.awk

function place_of_line(    at)
{
  at = index($0, "@ ")
  return at ? substr($0, at + 2) : ""
}

function is_kept(    i)
{
  for (i = 5; i <= NF; i++)
    if ($i == "bytes")
      return $(i + 1) == "saved" || $(i + 1) == "reload"
  return 0
}

function say(stream, what)
{
  if (active)
    printf "  %-8s %s\n", stream, what
}

/^(setup|forward|backward|finish|optimizer)/ { in_phase = $1 == phase; active = 0 }
in_phase && place_of_line() != "" { active = index(place_of_line(), place) == 1 }

$1 ~ /alloc/ {
  name[$3] = $4
  kept[$3] = is_kept()
}
$1 == "kernel" {
  say($2, sprintf("%-22s %s", $3, place_of_line()))
  copied[$2] = ""
}
$1 == "d2h" {
  say($2, "copies " name[$3] " to the host")
  copied[$2] = " for " name[$3]
}
$1 == "h2d" {
  say($2, "copies " name[$5] " back")
  copied[$2] = " for " name[$5]
}
$1 == "record" {
  stream_of[$3] = $2
  awaited[$3] = copied[$2]
}
$1 == "wait" && stream_of[$3] != $2 { say($2, "waits for " stream_of[$3] awaited[$3]) }
$1 == "host_wait" { say("host", "waits for " stream_of[$3] awaited[$3]) }
$1 == "free" && kept[$3] { say("memory", name[$3] " goes" ($4 == "after" ? ", marked for " $5 : "")) }
