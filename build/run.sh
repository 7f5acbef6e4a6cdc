#!/bin/sh
# GN starts scripts, not programs of PATH or of the build.
exec "$@"
