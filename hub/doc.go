// Package hub fetches models by name from Hugging Face's hub, or by URL from any server, and finds
// them in a cache.
//
//	h, err := hub.FromEnvironment()
//	path, err := h.Pull(ctx, "org/name:Q4_K_M", nil) // fetches what is missing
//	path, err = h.Find("org/name:Q4_K_M")            // never uses the network
//	model, err := smelt.Open(path, "")
//
// # Names
//
//	org/name                  the model of a repository
//	org/name:Q4_K_M           its GGUF file of that type
//	org/name/dir/file.gguf    a file of it
//	org/name@REV, org/name@REV:Q4_K_M, org/name@REV/file.gguf
//
// REV is a branch, a tag or a commit; its slashes are written as %2F, except in refs/pr/N. A name
// can be prefixed with hf:, hf:// or one of the hub's hosts, with or without https://, and the URL
// of a page of the hub is a name too. Any other http or https URL names the one file at it.
//
// In a repository with GGUF files, a name without a type selects the only one, or else that of
// [DefaultType]; if none has that type, or several do, the error lists the files. A file split into
// parts counts as one. Without GGUF files the model is the folder: config.json, the weights in
// safetensors (model.safetensors, or the files that model.safetensors.index.json lists, or all),
// and the files of tokenizers and templates.
//
// # The cache
//
// The cache is shared with Hugging Face's tools and has their layout:
//
//	models--org--name/blobs/ETAG                  contents, by their hash
//	models--org--name/refs/main                   the commit of a branch
//	models--org--name/snapshots/COMMIT/dir/file   links to ../../../../blobs/ETAG
//	.locks/models--org--name/ETAG.lock            locked while ETAG.incomplete is written
//
// Its folder is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH (else HF_HOME/token),
// HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_DISABLE_SYMLINKS and HF_HUB_OFFLINE have the meaning that
// they have in those tools. Files of other URLs are cached in a separate folder of smelt's, since
// those tools would report it as a corrupt repository.
//
// # Laws
//
// A file appears under its name only when complete: with the size and the hash that the hub gives.
// A partial file is kept after an interruption and continued if the file on the server is
// unchanged. The token is sent to the hub only, never to the host of a redirect.
package hub
