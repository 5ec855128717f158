package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Guest = (*service)(nil)

// Vacant looks for schemas whose names begin with the prefix, and for advisory locks of the run's class.
func (s *service) Vacant(ctx context.Context) (string, error) {
	name, err := s.member.one(ctx, `SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)
		UNION ALL SELECT 'advisory locks of class `+fmt.Sprint(s.keys.class())+`' FROM pg_locks WHERE `+s.keys.inClass()+` LIMIT 1`, s.common.Attached.Under)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	}
	return "", topology.Occupied("schema " + name)
}

// Remove drops the run's schema. Advisory locks ended with the clients' sessions.
func (s *service) Remove(ctx context.Context, _ []string) (string, error) {
	err := s.member.ask(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET client_min_messages = warning; DROP SCHEMA IF EXISTS `+s.keys.quoted()+` CASCADE`)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("drop schema %s: %w", s.keys.schema(), err)
	}
	return "schema " + s.keys.schema(), nil
}
