-- What the servers may do in the database, and no more (docs/security.md#a-role-for-serving). Run by `manage.py migrate` in
-- one transaction, as the role that owns the tables, behind each migration.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gateway_serving') THEN
        CREATE ROLE gateway_serving NOLOGIN;
    END IF;
END $$;

-- Nobody but the owner makes or alters tables, functions and triggers.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO gateway_serving;

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM gateway_serving;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO gateway_serving;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO gateway_serving;

-- The books: rows are added, and never changed or removed.
REVOKE UPDATE, DELETE ON billing_ledgerentry, billing_generation, billing_frozenterms FROM gateway_serving;
DO $$ DECLARE partition regclass; BEGIN
    FOR partition IN SELECT relid FROM pg_partition_tree('billing_generation') LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM gateway_serving', partition);
    END LOOP;
END $$;

-- Histories: never changed. They go with their account or person; a price's history outlives its route and its editor.
REVOKE UPDATE ON aliases_aliasevent, django_admin_log FROM gateway_serving;
GRANT UPDATE (by_id, by_key_id) ON aliases_aliasevent TO gateway_serving;
REVOKE UPDATE, DELETE ON catalogue_pricechange FROM gateway_serving;
GRANT UPDATE (region_id, changed_by_id) ON catalogue_pricechange TO gateway_serving;

-- Written by `migrate` alone.
REVOKE INSERT, UPDATE, DELETE ON django_migrations, django_content_type, auth_permission FROM gateway_serving;

-- Tables of the next migration serve until these lines are run again.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO gateway_serving;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO gateway_serving;
