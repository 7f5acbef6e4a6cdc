# How much device memory a plan of one rank has requested at each kernel and copy, in MiB: what is
# resident, and what was allocated and not yet freed. A "#" means 8 MiB above the residents.
#
#   offsim plan SCENARIO.yaml | awk -f docs/examples/memory.awk

function bytes_of_line(    i)
{
  for (i = 1; $i != "bytes"; i++)
    ;
  return int(($(i - 1) + 511) / 512) * 512
}

# In whole tenths: a locale may have awk print and read a comma.
function mebibytes(bytes,    tenths)
{
  tenths = int(bytes * 10 / 1048576 + 0.5)
  return int(tenths / 10) "." tenths % 10
}

function bar(bytes,    text)
{
  for (text = ""; bytes >= 8 * 1048576; bytes -= 8 * 1048576)
    text = text "#"
  return text
}

function show(what,    at, line)
{
  at = index($0, "@ ")
  line = sprintf("%7s  %-24s  %-37s  %s", mebibytes(now), what, at ? substr($0, at + 2) : "",
                 bar(now - resident))
  sub(/ +$/, "", line)
  print line
}

$1 == "resident"           { resident += bytes_of_line(); now = resident }
$1 == "alloc"              { size[$3] = bytes_of_line(); now += size[$3] }
$1 == "free"               { now -= size[$3] }
$1 == "kernel"             { show($3) }
$1 == "d2h" || $1 == "h2d" { show($1) }
/^(forward|backward|optimizer)/
