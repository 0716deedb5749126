-- Gives the servers the rights that they need, and no more (docs/security.md#a-role-for-serving). `manage.py migrate`
-- runs it after the migrations in one transaction, as the role that owns the tables.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gateway_serving') THEN
        CREATE ROLE gateway_serving NOLOGIN;
    END IF;
END $$;

-- Only the owner can create or alter tables, functions and triggers.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO gateway_serving;

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM gateway_serving;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO gateway_serving;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO gateway_serving;

-- The books: rows are only added.
REVOKE UPDATE, DELETE ON billing_ledgerentry, billing_generation, billing_frozenterms FROM gateway_serving;
DO $$ DECLARE partition regclass; BEGIN
    FOR partition IN SELECT relid FROM pg_partition_tree('billing_generation') LOOP
        EXECUTE format('REVOKE UPDATE, DELETE ON %s FROM gateway_serving', partition);
    END LOOP;
END $$;

-- The transparency log: leaves are only added, and tiles only grow.
REVOKE UPDATE, DELETE ON proof_leaf FROM gateway_serving;
REVOKE DELETE ON proof_tile, proof_loggedaccount FROM gateway_serving;

-- Histories: rows are never changed. They are deleted with their account or person; a price's history is kept.
REVOKE UPDATE ON aliases_aliasevent, django_admin_log FROM gateway_serving;
GRANT UPDATE (by_id, by_key_id) ON aliases_aliasevent TO gateway_serving;
REVOKE UPDATE, DELETE ON catalogue_pricechange, accounts_auditevent FROM gateway_serving;
GRANT UPDATE (region_id, changed_by_id) ON catalogue_pricechange TO gateway_serving;
REVOKE UPDATE, DELETE ON catalogue_figurechange FROM gateway_serving;

-- Only `migrate` writes these.
REVOKE INSERT, UPDATE, DELETE ON django_migrations, django_content_type, auth_permission FROM gateway_serving;

-- Tables of the next migration can be used before this file is run again.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO gateway_serving;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO gateway_serving;
