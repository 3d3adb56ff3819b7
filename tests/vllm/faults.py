"""A plugin of vLLM's, for tests: each line of the file $WEIGHTCAST_TEST_FAULTS makes the next write fail in the middle."""

import os


def register():
    from weightcast.vllm import _model

    def failing(stage):
        def staged(self, *arguments):
            found = stage(self, *arguments)

            def write():
                found.write()
                path = os.environ["WEIGHTCAST_TEST_FAULTS"]
                with open(path) as file:
                    faults = file.read().splitlines()
                if faults:
                    with open(path, "w") as file:
                        file.writelines(line + "\n" for line in faults[1:])
                    for flat in self._flat.values():
                        flat.zero_()  # what is there when it fails
                    raise RuntimeError(faults[0])

            return found._replace(write=write)

        return staged

    for name in ("stage_cells", "stage_whole"):
        method = getattr(_model.VllmModel, name)
        if method.__name__ != "staged":
            setattr(_model.VllmModel, name, failing(method))
