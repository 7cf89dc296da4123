# SPDX-License-Identifier: GPL-2.0
#
# Short forms of what tools/xtask does. Kbuild reads the file Kbuild, not this one.

KERNEL ?=
DEVICE ?=
T ?=
SECONDS ?=
RUNS ?=

# xtask and cargo get no job server and no variables of this make.
xtask = env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL scripts/xtask
on = $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(DEVICE),--device '$(DEVICE)')

.PHONY: help
help:
	@echo 'Usage: make TARGET [KERNEL=debian|test|kasan] [DEVICE=model|vfio:<BDF>]'
	@echo
	@echo '  run          boot a VM in which mlx5_rs brings up a device       (KERNEL: debian)'
	@echo '  shell        the same, with a shell in the guest                 (KERNEL: debian)'
	@echo '  peer         the same device under the kernel'\''s own mlx5_core   (KERNEL: debian)'
	@echo '  test         everything below, on all kernels; ends with "N passed, N failed"'
	@echo '  lint         rustfmt, clippy, rustdoc'
	@echo '  host-test    tests of the host crates, also under AddressSanitizer'
	@echo '  kunit        KUnit suites in a VM                                (KERNEL: test)'
	@echo '  vm-test      VM tests; T=NAME runs those with NAME in their name (KERNEL: test)'
	@echo '  fuzz         every fuzz target, SECONDS=n each (60), or RUNS=n inputs each'
	@echo '  soak         VM tests in their long form; T=NAME                 (KERNEL: test, then kasan)'
	@echo '  bench        benches of the host crates'
	@echo '  intree       build the driver inside a kernel tree'
	@echo '  fmt          format all Rust files'
	@echo '  modules      build mlx5_rs.ko against a kernel tree: KDIR=<tree> [MO=<output folder>]'
	@echo '  env          print the variables that cargo needs when called by hand'
	@echo '  clean        remove what was built in the work tree'
	@echo '  clean-cache  remove toolbox, kernels and images from $${XDG_CACHE_HOME:-~/.cache}/mlx5_rs'
	@echo
	@echo 'Environment:'
	@echo '  MLX5RS_TOOLBOX=auto|always|never  where compilers and QEMU come from: auto takes the'
	@echo '                        host'\''s if they are complete, else a Debian root in the cache'
	@echo '  MLX5RS_JOBS=n         compilers at once (number of CPUs)'
	@echo '  MLX5RS_DEBIAN_MIRROR  address of a Debian mirror (that of the host'\''s apt)'
	@echo '  MLX5RS_RDMA_CORE      folder with include/ and source/ of rdma-core (those of Debian 13)'

.PHONY: run shell peer kunit lint
run shell peer kunit lint:
	@$(xtask) $@ $(on)

.PHONY: vm-test soak
vm-test soak:
	@$(xtask) $@ $(on) $(if $(T),--filter '$(T)')

.PHONY: fuzz
fuzz:
	@$(xtask) $@ $(if $(SECONDS),--seconds '$(SECONDS)') $(if $(RUNS),--runs '$(RUNS)')

.PHONY: test host-test bench intree fmt env clean clean-cache
test host-test bench intree fmt env clean clean-cache:
	@$(xtask) $@

.PHONY: modules
modules:
	$(if $(KDIR),,$(error KDIR is not set: make modules KDIR=<prepared kernel tree with CONFIG_RUST=y>))
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(abspath $(MO))) modules
