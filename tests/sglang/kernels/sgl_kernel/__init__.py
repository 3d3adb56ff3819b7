"""In the place of SGLang's kernels, which are for GPUs and AMX. Whatever is taken from it fails when it is called."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*arguments, **options):
        raise NotImplementedError(f"sgl_kernel.{name} is not here")

    return kernel
