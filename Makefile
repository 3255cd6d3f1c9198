# make demo       a story from the trained Qwen3 model in testdata/
# make test       everything that a change must pass, seven minutes on two cores
# make help       the dozen targets that people need; make help-all lists every one

GO ?= go
# A pipe fails where any part of it does.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
export CGO_ENABLED ?= 1
# What was compiled in one folder serves every other clone.
export GOFLAGS ?= -trimpath

staticcheck := honnef.co/go/tools/cmd/staticcheck@v0.7.0
cxx_sources := $(shell git ls-files '*.metal' '*.h' '*.cc' '*.cpp' '*.c' '*.m' 2>/dev/null | grep -v -e '\.gen\.cc$$' -e /testdata/)

# $(call tested,NAME) COMMAND runs a command that prints what go test -json does. What was
# skipped is kept for the end, when $(skipped) says it with the reasons.
tested = $(GO) tool gotestsum --format standard-quiet --hide-summary skipped --jsonfile build/tests/$(1).json --raw-command -- env
skipped = cat build/tests/*.json | $(GO) tool gotestsum --format standard-quiet --raw-command -- cat | sed -n '/^=== Skipped/,$$p'

# What make vet, or the first line of make bridge, has looked at need not be vetted again.
go_test := $(GO) test -json -vet=off

# The bridge's tests. OpenBLAS' own threads would wait for each other in busy loops.
bridged := OPENBLAS_NUM_THREADS=1 $(go_test) -tags fakemetal,openblas -timeout 8m

.PHONY: help help-all imports build demo test packages whole soak cold cold-test setup tests vet outside generate check test-isa test-nodes test-arm64 arm64-models arm64-families arm64-max arm64-a76 arm64-a53 test-race test-asan test-page load deployed kernels native mutants accuracy histories bench-peer parity tokens templates clients bench-guard profile fuzz barriers clean bridge metallib test-metal platforms

# What make help lists.
daily := build demo test check generate bench-guard bench-peer test-metal fuzz soak clean help-all
listed = sed -E 's/:[^\#]*\#\# /\t/' | expand -t 14

help: ## the targets that people need
	@for t in $(daily); do grep -hE "^$$t:.*##" Makefile; done | $(listed)

help-all: ## every target
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sort | $(listed)

setup: ## the packages that build and tests need
	@.ci/need go=golang g++=g++ git=git

# Without what debuggers read, a quarter of the file, and without HTTP/2, which takes TLS, and
# that is for a proxy in front of smelt serve.
build: setup ## bin/smelt
	$(GO) build -tags nethttpomithttp2 -ldflags='-s -w' -o bin/smelt ./cmd/smelt

demo: build ## a story from a small trained model
	bin/smelt run testdata/models/tiny-qwen3/gguf/tiny-qwen3-F16.gguf -p "Once upon a time" -n 400 --temp 0.8 --seed 4

# cgocall reads the sources of C where they lay when they were compiled, which with
# -trimpath may have been another clone.
nocgo := -cgocall=false

vet: setup ## gofmt and go vet
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run gofmt on these"; exit 1; }
	$(GO) vet $(nocgo) ./...

outside: setup ## a model defined outside of this module
	cd testdata/outside && GOWORK=off $(GO) list -deps ./... >/dev/null && $(GO) vet ./... && $(GO) run . >/dev/null

tests: setup
	@.ci/need clang-19=clang-19
	@mkdir -p build/tests
	@$(GO) tool gotestsum --version >/dev/null # compiled before two ask for it

# vet compiles what the others share, which would otherwise do it each for itself. They run
# beside each other: much of the bridge's time is one test's.
test: ## everything that a change must pass
	@rm -rf build/tests
	@$(MAKE) --no-print-directory vet tests
	@$(MAKE) --no-print-directory -j3 outside bridge packages
	@$(skipped)

packages: tests ## the tests of all packages
	@$(call tested,all) $(go_test) ./...

# What is no other for the stand-in, or for a GPU: builds, and tests of the sources' text.
same := ^(TestOtherPlatforms|TestUnderSanitizers|TestMachines)$$
sources := ^Test(Single|DecodePlans|Sources|KernelsAre|Linear(Vec|Mat)Traffic|Table|Params|Grids|Check)

bridge: tests ## the Metal bridge over a stand-in for Metal, with OpenBLAS as the CPU's BLAS
	@.ci/need 'echo | gcc -x objective-c -fsyntax-only -=gobjc' 'echo "#include <cblas.h>" | gcc -E -xc -=libopenblas-dev'
	$(GO) vet $(nocgo) -tags fakemetal,openblas ./device/... ./metal/... ./kernels ./kernels/native . ./internal/integration ./cmd/smelt
	@$(call tested,device) $(bridged) -skip '$(same)' ./device/... ./metal/...
	@$(call tested,blas) $(bridged) -run BLAS ./kernels/native
	@$(call tested,kernels) SMELT_KERNELS_DEVICE=metal $(bridged) -skip '$(sources)' ./kernels
	@$(call tested,models) $(bridged) -run '(TestLogits|TestPlacedProducts)/.*/.*/metal|(TestStepByStep|TestFewTokens|TestGreedyText|TestNextMatchesLogits|TestCopies|TestEngine$$)/.*/metal|^(TestResolve|TestOtherTarget|TestHalves)$$' . ./internal/integration
	@$(call tested,default) $(go_test) -tags fakemetal -timeout 5m -run '^TestDefaultDevice' ./cmd/smelt
	@$(call tested,placed) $(go_test) -tags fakemetal -timeout 5m -run 'ProductsOnTheCPU' ./metal

# Each is a target of its own; the page needs a browser, arm64 an emulator.
soak: check platforms cold cold-test whole load deployed histories kernels mutants accuracy barriers test-page test-isa test-nodes test-race test-asan test-arm64 fuzz ## what make test does a slice of, whole: hours

cold: ## make demo with an empty build cache: processor and wall time, against their bounds
	$(GO) run ./internal/tools/budget/cold demo

cold-test: ## make test likewise
	$(GO) run ./internal/tools/budget/cold test

metallib: ## on a Mac with Xcode: the kernels compiled ahead of time, for SMELT_METALLIB
	@mkdir -p build
	@xcrun -sdk macosx metal --version >/dev/null 2>&1 || { echo "make metallib: xcrun finds no Metal compiler. It is part of Xcode," \
		"not of the command line tools alone, and from Xcode 26 on a component of its own: xcodebuild -downloadComponent" \
		"MetalToolchain. Running smelt needs none of it." >&2; exit 1; }
	@for f in kernels/*.metal kernels/published/*.metal; do xcrun -sdk macosx metal -std=metal3.1 -mmacosx-version-min=14.0 -fno-fast-math \
		-Wall -Werror -c $$f -o build/$$(basename $$f .metal).air || exit 1; done
	xcrun -sdk macosx metallib build/*.air -o build/smelt.metallib

test-metal: ## on a Mac: kernels and models on its GPU against the references; writes build/metal-report.txt
	@.ci/test-metal

platforms: ## builds for systems where nothing can be executed
	CGO_ENABLED=0 GOOS=linux $(GO) build -o build/smelt-linux ./cmd/smelt
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build -o build/smelt-darwin ./cmd/smelt
	CGO_ENABLED=0 GOOS=windows $(GO) build -o build/smelt.exe ./cmd/smelt

imports: ## docs/imports.svg: which rooms import which
	$(GO) run ./internal/tools/imports

generate: ## what is made from the .metal sources
	$(GO) generate ./...

check: setup ## staticcheck and clang-format, silent when all is well
	@.ci/need clang-format-19=clang-format-19
	$(GO) run $(staticcheck) ./...
	@clang-format-19 --dry-run --Werror $(cxx_sources)

test-isa: setup ## the native kernels and whole models under every instruction set of this machine
	$(GO) test ./kernels/native
	SMELT_FULL=isa $(GO) test -v -timeout 60m -run '^TestInstructionSets$$' ./internal/integration

# Processors of qemu with I8MM, with DotProd only, and with neither. Each set is tested on the
# least of them that has it, what does not depend on sets on the first only.
arm64_emulator = qemu-aarch64 -cpu $(1) -L /usr/aarch64-linux-gnu
emulated_arm64 = GOARCH=arm64 CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ SMELT_EXEC='$(arm64_emulator)' \
	$(GO) test -short -timeout 150m -exec '$(arm64_emulator)'

test-arm64: setup ## cross-built for arm64 and run under qemu-user, on processors with and without DotProd and I8MM
	@.ci/need aarch64-linux-gnu-g++=g++-aarch64-linux-gnu qemu-aarch64=qemu-user
	@$(MAKE) --no-print-directory -j2 arm64-models arm64-families arm64-max arm64-a76 arm64-a53

# Whole models take longest, and so begin, in two parts.
arm64_families = Parity|Bits
arm64-models: ## of test-arm64, whole models on the processor with DotProd and I8MM
	$(call emulated_arm64,max) -skip '$(arm64_families)' . ./internal/integration

arm64-families: ## of test-arm64, the families and their bits on that processor
	$(call emulated_arm64,max) -run '$(arm64_families)' ./internal/integration

arm64-max: ## of test-arm64, all other packages on that processor
	$(call emulated_arm64,max) -skip '/^(dotprod|neon|portable)$$' ./kernels/... ./device/... ./metal/... ./internal/engine/... ./internal/verify ./models/quant ./internal/tiny

arm64-a76: ## of test-arm64, one with DotProd only
	$(call emulated_arm64,cortex-a76) -run '/^dotprod$$' ./kernels/native
	$(call emulated_arm64,cortex-a76) -run 'TestLogits|TestStepByStep' ./internal/integration

arm64-a53: ## of test-arm64, one with neither
	$(call emulated_arm64,cortex-a53) ./kernels/native
	$(call emulated_arm64,cortex-a53) -run 'TestLogits|TestStepByStep' ./internal/integration

test-race: setup ## what several goroutines use at once, under Go's race detector
	$(GO) test -race -timeout 20m ./internal/engine/... ./internal/batch
	$(GO) test -race -timeout 20m -run '^(TestManySessions|TestClose|TestMemory)$$' .
	$(GO) test -race -short -timeout 20m -run '^TestEngine' .
	$(GO) test -race -timeout 20m -run '^(TestConcurrentSessions|TestCancel)$$' ./device

test-asan: setup ## the .metal sources under AddressSanitizer, which names their lines
	CGO_CXXFLAGS=-fsanitize=address $(GO) test -asan -ldflags='-s=false -w=false' -timeout 30m ./kernels/emulated ./kernels

whole: setup ## models, texts and graphs of which tests otherwise take a slice
	SMELT_FULL=models $(GO) test -timeout 60m . ./internal/integration ./cmd/smelt ./chat ./constrain ./internal/verify ./passes

load: setup ## 64 clients at a server for two minutes, and a neighbour on one core; on a machine that does nothing else
	SMELT_FULL=load $(GO) test ./serve -run '^Test(Load|Fair)$$' -count=1 -v
	SMELT_FULL=load $(GO) test ./device -run '^TestNeighbour$$' -count=1 -v

test-nodes: setup ## models on machines of qemu's with two and three memory nodes
	@.ci/test-nodes

deployed: setup ## what deploy/ has: two replicas behind HAProxy, one killed; cache events, manifests, the picker, the container's file
	@.ci/need haproxy=haproxy bwrap=bubblewrap 'echo "#include <zmq.h>" | gcc -E -xc -=libzmq3-dev'
	SMELT_FULL=deployed $(GO) test ./internal/cacheevents -count=1 -v
	SMELT_FULL=deployed $(GO) test ./cmd/smelt -run '^Test(Replicas|ProxyStreams)$$' -count=1 -v
	cd deploy/check && SMELT_FULL=deployed GOWORK=off $(GO) test -count=1 -v ./...

kernels: setup ## the kernels on the whole grid of shapes, and how near they come to their bounds
	SMELT_FULL=kernels $(GO) test -C kernels -timeout 60m
	SMELT_FULL=kernels $(GO) test -timeout 60m $$($(GO) list ./kernels/... | tail -n +2) ./internal/profile

histories: setup ## random histories of the paged cache and the scheduler, 100,000 of each
	SMELT_FULL=histories $(GO) test -timeout 60m ./internal/engine/...

barriers: setup ## the bridge's plans without each barrier in turn
	@.ci/need 'echo | gcc -x objective-c -fsyntax-only -=gobjc' 'echo "#include <cblas.h>" | gcc -E -xc -=libopenblas-dev'
	SMELT_FULL=barriers OPENBLAS_NUM_THREADS=1 $(GO) test -tags fakemetal,openblas -timeout 60m ./metal

# What moves the browser, as it was tried.
browser := puppeteer-core@25.16.0

test-page: setup ## the pages of smelt serve and of smelt explain --html in a browser
	@.ci/need chromium=chromium npm=npm node=nodejs
	@mkdir -p build/browser && cd build/browser && npm install --silent --no-audit --no-fund $(browser)
	$(GO) test -v -run 'TestPage|TestLoadSeesErrors' ./internal/page
	SMELT_FULL=browser $(GO) test ./serve -run '^TestPage$$' -count=1 -v

accuracy: setup ## perplexity of every type of weights, against F16 and float64
	SMELT_FULL=accuracy $(GO) test -v -timeout 60m -run '^Test(Accuracy|Perplexity)$$' . ./internal/integration | grep -v '^=== '

# PEER_DIR holds llama.cpp and the models, PEER_FLAGS are those of internal/tools/peer,
# GUARD_FLAGS those of its guard, and LLAMA_BENCH names a llama-bench to measure instead.
PEER_DIR ?= build/peer

bench-peer: build ## smelt beside llama.cpp on this CPU, 40 minutes; writes the table in docs/performance.md
	@[ -n "$$LLAMA_BENCH" ] || [ -d $(PEER_DIR)/node_modules ] || .ci/need npm=npm
	$(GO) run ./internal/tools/peer --dir $(PEER_DIR) --smelt bin/smelt --docs docs/peer --document docs/performance.md $(PEER_FLAGS)

parity: setup ## what llama.cpp computes for a small model of every family and geometry, and of its changes, into testdata/parity
	@[ -d $(PEER_DIR)/node_modules ] || .ci/need npm=npm
	$(GO) run ./internal/tools/peer parity --dir $(PEER_DIR)
	$(GO) run ./internal/tools/peer keys --dir $(PEER_DIR)

tokens: setup ## what llama.cpp and Hugging Face's library make of odd texts, into models/tokenizer/testdata
	@[ -d $(PEER_DIR)/node_modules ] || .ci/need npm=npm
	$(GO) run ./internal/tools/peer tokens --dir $(PEER_DIR)
	$(GO) run ./internal/tools/peer pipelines --dir $(PEER_DIR)

templates: setup ## what others render from public chat templates, into chat/jinja/testdata; needs Jinja2
	@[ -d $(PEER_DIR)/node_modules ] || .ci/need npm=npm
	$(GO) run ./internal/tools/peer templates --dir $(PEER_DIR)

# What a server's clients are, as they were tried.
clients := openai@7.57.0 @anthropic-ai/sdk@1.12.0 ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 webai-at-home@0.1.8 zod@4

clients: setup ## clients of other makers against smelt's server; fails where one is missing
	@.ci/need npm=npm node=nodejs
	@mkdir -p build/clients && cd build/clients && npm install --silent --no-audit --no-fund $(clients)
	SMELT_FULL=clients $(GO) test ./serve -run 'Client|Conformance' -count=1 -v

A ?= HEAD~1
B ?= HEAD

bench-guard: setup ## speed of commit B beside commit A, about five minutes: make bench-guard A=main B=HEAD
	$(GO) run ./internal/tools/peer guard --dir $(PEER_DIR) --a $(A) --b $(B) $(GUARD_FLAGS)

profile: build ## the table in docs/kernels.md: what kernels ask of memory
	@sed -i.old '/^## On m4-max/,$$d' docs/kernels.md && rm docs/kernels.md.old
	@{ echo '## On m4-max'; echo; echo '    make profile   # bin/smelt kernels --profile all, on arch:qwen3-0.6b and arch:llama3.1-8b'; echo; \
		bin/smelt kernels --profile all | sed 's/ *$$//; s/^/    /'; } >> docs/kernels.md

# The edit-test loop of the native kernels. make compiles the units that a changed header is
# part of, and nothing else; the tests load the set, and a Go build has no C++ of others.
SET ?= avx2
RUN ?= .
set_units = $(foreach s,$(SET) $(if $(filter avxvnni,$(SET)),avx2) $(if $(filter dotprod i8mm,$(SET)),neon),$(wildcard kernels/native/$(s)/*.cpp))

native: build/native/$(SET).so ## what changed of a set of native kernels, tested alone: make native SET=avx2 RUN=Norm
	SMELT_NATIVE_SET=$(abspath $<) $(GO) test -count=1 -tags loaded ./kernels/native -run '$(RUN)'

build/native/$(SET).so: $(set_units:kernels/native/%.cpp=build/native/%.o)
	g++ -shared -o $@ $^

build/native/%.o: kernels/native/%.cpp
	@mkdir -p $(@D)
	g++ $$($(GO) list -f '{{join .CgoCXXFLAGS " "}}' ./$(<D)) -fPIC -MMD -c -o $@ $<

-include $(wildcard build/native/*/*.d)

mutants: setup ## kernels with deliberate faults: their tests must notice each
	$(GO) run ./internal/tools/mutants

fuzz: setup ## every fuzz target for a while: make fuzz TIME=5m
	@for pkg in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$pkg | grep ^Fuzz); do \
		echo $$pkg $$f; $(GO) test -run XXX -fuzz "^$$f$$" -fuzztime $(or $(TIME),1m) -fuzzminimizetime 1x $$pkg || exit 1; done; done

clean: ## what was built
	rm -rf bin build
