#!/bin/sh
# Prints the libraries of a static program, a name a line, each before those that it needs itself. xxHash comes
# first: libfyaml.a has a copy of a part of it, which is linked only if something is missing.
pkg-config --static --libs-only-l libxxhash cairo fontconfig libfyaml sqlite3 zlib | tr ' ' '\n' |
  sed -n 's/^-l//p' | awk '{ at[$0] = NR; name[NR] = $0 }
    END { for (i = 1; i <= NR; i++) if (at[name[i]] == i) print name[i] }'
