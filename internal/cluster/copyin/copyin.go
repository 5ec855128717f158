// Package copyin copies files of this machine into containers.
package copyin

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/client"
)

// File writes a small file into a container, which need not be running.
func File(ctx context.Context, api client.APIClient, box, path, content string) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o644, Size: int64(len(content)),
		ModTime: time.Unix(0, 0),
	})
	if err == nil {
		_, err = t.Write([]byte(content))
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	if _, err := api.CopyToContainer(ctx, box, client.CopyToContainerOptions{
		DestinationPath: "/",
		Content:         &b,
	}); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// FolderPath is where a container has the folder.
const FolderPath = "/lockquake-program"

// maxFolder bounds the bytes copied into each container.
const maxFolder = 64 << 20

// Folder copies a folder of this machine into a container that is not yet started.
func Folder(ctx context.Context, api client.APIClient, box, folder string) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || !entry.IsDir() && !info.Mode().IsRegular() {
			return err
		}
		if size := int64(b.Len()) + info.Size(); !entry.IsDir() && size > maxFolder {
			return fmt.Errorf("it holds more than %d MiB, the limit for copies into containers: put the program into a separate folder", maxFolder>>20)
		}
		head, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		head.Name, head.Uid, head.Gid, head.Uname, head.Gname = filepath.ToSlash(filepath.Join(FolderPath[1:], below)),
			0, 0, "", ""
		if err := t.WriteHeader(head); err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			_, err = t.Write(content)
		}
		return err
	})
	if err = errors.Join(err, t.Close()); err != nil {
		return fmt.Errorf("copy folder %s: %w", folder, err)
	}
	if _, err := api.CopyToContainer(ctx, box, client.CopyToContainerOptions{
		DestinationPath: "/",
		Content:         &b,
	}); err != nil {
		return fmt.Errorf("copy folder %s: %w", folder, err)
	}
	return nil
}
