#!/usr/bin/env bash
# Generated requests against a running `crossfade serve`, from its own description: no answer may be a server error, and
# answers must be as described. Start the server with a high --rate and small limits, for example
#   crossfade serve --rate 1000000 --max-count 2 --max-steps 5 --max-megapixels 1 --wait 20
#   pip install schemathesis && tools/serve_schemathesis.sh http://127.0.0.1:7860
set -euo pipefail
base="${1:-http://127.0.0.1:7860}"
# Left out: positive_data_acceptance, because what fits a model (a class, a sampler for its process) is not in the schema.
exec schemathesis run "$base/openapi.json" --url "$base" --max-examples "${EXAMPLES:-40}" --seed 1 --workers 2 \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --request-timeout 60
