// Package hub fetches models by name from Hugging Face's hub, or by URL from anywhere, and finds
// those that were fetched.
//
//	h, err := hub.FromEnvironment()
//	path, err := h.Pull(ctx, "org/name:Q4_K_M", nil) // fetches what is not there yet
//	path, err = h.Find("org/name:Q4_K_M")            // never asks the network
//	model, err := smelt.Open(path, "")
//
// # Names
//
//	org/name                  the model of a repository
//	org/name:Q4_K_M           its GGUF file of that type
//	org/name/dir/file.gguf    a file of it
//	org/name@REV, org/name@REV:Q4_K_M, org/name@REV/file.gguf
//
// REV is a branch, a tag or a commit; slashes in it are written as %2F, but in refs/pr/N. Before
// a name may stand hf:, hf:// and the hub's hosts, with or without https://, and the address of a
// page of the hub is a name too. Any other http or https URL is that of one file.
//
// Of a repository with GGUF files a name without a type means the only one, else that of
// [DefaultType]; where there is none of that type, or several, the error lists what there is. A
// file in parts is one. Without GGUF files the model is the folder: config.json, the weights in
// safetensors (model.safetensors, or what model.safetensors.index.json lists, or all there are),
// and what tokenizers and templates are read from.
//
// # The cache
//
// It is the one that Hugging Face's tools have, in their layout, so that each sees what the others
// fetched:
//
//	models--org--name/blobs/ETAG                  contents, by their hash
//	models--org--name/refs/main                   the commit of a branch
//	models--org--name/snapshots/COMMIT/dir/file   links to ../../../../blobs/ETAG
//	.locks/models--org--name/ETAG.lock            locked while ETAG.incomplete is written
//
// The environment says where: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub,
// else ~/.cache/huggingface/hub. HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH (else HF_HOME/token),
// HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_DISABLE_SYMLINKS and HF_HUB_OFFLINE mean what they mean
// there. Files of other URLs lie in a folder of smelt's own, since those tools would take it for
// a damaged one of theirs.
//
// # Laws
//
// A file appears under its name once it is whole: of the size and with the hash that the hub
// gives. What was fetched before a break is kept and gone on with, if it is still the same file.
// The token goes to the hub alone, never where it redirects to.
package hub
