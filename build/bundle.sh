#!/bin/sh
exec node "$(dirname "$0")/bundle.mjs" "$@"
